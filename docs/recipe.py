"""The paper on one task, from texts to scores, by the library's public calls.

``python docs/recipe.py train.jsonl validation.jsonl`` prints the scores of the embedded encoder
with constant heads, for files with the columns ``text`` and ``label``. ``papa run`` finds the same
scores, to the last digit, for a study of these files with the same seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pandas

import papa


def scores_by_share(
    encoder: papa.Encoder,
    data: Mapping[str, pandas.DataFrame],
    task: papa.Task,
    *,
    keep: Sequence[float] = (1.0, 0.5, 0.125, 0.0625, 0.0),
    probe_seeds: Sequence[int] = (0, 1, 2),
    ranking_seeds: Sequence[int] = (0, 1, 2),
    ranking_rows: int | None = None,
) -> dict[float, list[float]]:
    """Return the score of every probe seed, by the share of heads that stay input-dependent.

    Args:
        encoder: The encoder.
        data: Texts and labels, under "train" and "validation".
        task: The columns, the metric, and how probes are trained.
        keep: Shares of heads that stay input-dependent.
        probe_seeds: A probe is trained from each.
        ranking_seeds: λ is trained from each; heads are ordered by its mean.
        ranking_rows: How many training rows λ is trained on; None takes all.
    """
    # C: for every head and pair of slots the mean of A, over texts with tokens at both (3.1).
    average = papa.average(encoder, data["train"], text=task.text)

    # λ: B = λA + (1 - λ)C, trained with a probe; heads become constant by its mean (3.2).
    lambdas = papa.head_scores(
        encoder,
        data,
        task=task,
        method="lambda",
        substitute=average,
        ranking_seeds=ranking_seeds,
        rows=ranking_rows,
    )

    # For every share a new probe on the features of the frozen encoder, for all seeds (3.3).
    measurement = papa.measure(
        encoder,
        data,
        task=task,
        substitutes=[average],
        orders=[lambdas],
        keep=keep,
        probe_seeds=probe_seeds,
    )
    scores = measurement.results.groupby("fraction")["score"].agg(list)
    return {share: scores[share] for share in keep}


if __name__ == "__main__":
    train, validation = (pandas.read_json(path, lines=True) for path in sys.argv[1:3])
    results = scores_by_share(
        papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=64),
        {"train": train, "validation": validation},
        papa.Task(),
    )
    for share, scores in results.items():
        print(f"{share:>6.4g}: {pandas.Series(scores).mean():.3f} {scores}")
