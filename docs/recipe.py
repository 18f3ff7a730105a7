"""The paper on one task, from text to scores, by the library's own calls.

``python docs/recipe.py studies/demo.yaml`` prints what ``papa run`` finds for a study's first
encoder and task, to the last digit where its training text is one shard and the order is by λ.
Every step is a stage of a study, which stores what it made.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from papa.heads.average import average_split
from papa.models.encoder import load_encoder
from papa.models.reference import load_tokenizer, resolve_encoder
from papa.probes.evaluate import evaluate_cell
from papa.ranking.learned import train_lambda
from papa.ranking.orders import head_order
from papa.ranking.seeds import TrainedLambda
from papa.scores.intervals import interval
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.spec.orders import constant_heads
from papa.text.corpus import load_corpus, tokenise_corpus


def scores_by_fraction(study: StudySpec, folder: Path) -> dict[float, list[float]]:
    """The score of every seed, by the share of heads that stay input-dependent."""
    task, reference = study.tasks[0], resolve_encoder(study.encoders[0])
    encoder = load_encoder(reference)

    # Every text in S slots: [CLS] first, [SEP] in the last one (Appendix A).
    words, place = load_tokenizer(reference), folder / "corpus"
    tokenise_corpus(task, study.layout, words, place, shard_rows=1024)
    corpus = load_corpus(place)

    # C: for every head and pair of slots the mean of A, over texts with tokens at both (3.1).
    tokens, train = encoder.tokens_per_batch(None), corpus.split("train")
    sums = average_split(encoder, train, slots=task.slots, batch_tokens=tokens)
    average = sums.average()

    # λ: B = λA + (1 - λ)C, trained with a probe; heads become constant by its mean (3.2).
    by_seed = {
        seed: train_lambda(encoder, average, corpus, task, study.ranking, seed=seed).numpy()
        for seed in study.ranking_seeds
    }
    scores = TrainedLambda(by_seed).mean
    order = head_order("lambda", scores, encoder.layers, encoder.heads)

    # For every fraction a new probe on the features of the frozen encoder, for all seeds (3.3).
    found: dict[float, list[float]] = {}
    for fraction in study.keep:
        cell = evaluate_cell(
            encoder,
            corpus,
            task,
            study.probe_seeds,
            constants=average,
            heads=constant_heads(order, fraction),
            features=study.features,
            execution=study.execution,
            scratch=folder / "features",
        )
        found[fraction] = [scored.score for scored in cell]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for fraction, scores in scores_by_fraction(
            load_study(Path(sys.argv[1])), Path(place)
        ).items():
            mean = interval(scores)
            print(f"{fraction:>6.4g}: {mean.mean:.3f} ({mean.low:.3f} to {mean.high:.3f})")
