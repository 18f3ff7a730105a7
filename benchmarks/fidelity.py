"""``python -m benchmarks.fidelity``: a probe's score beside what embeddings keep, at the same
constant heads.

MiniLM is made for embeddings. WNUT-17 trains λ, the probes and the average; embeddings are compared
on validation rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas
import torch

import papa
from benchmarks.document import table
from benchmarks.setting import SHARED
from papa.encoders.reference import EMBEDDED
from papa.library.encoder import TextEncoder
from papa.scores.fidelity import embedding_fidelity
from papa.scores.intervals import Interval
from papa.spec.cells import constant_count
from papa.spec.orders import Head, drawn_from, head_order

FRACTIONS = (1.0, 0.5, 0.0)
TASK = papa.Task(
    words="tokens",
    label="ner_tags",
    metric="entity_f1",
    epochs=5,
    learning_rate=2e-3,
    name="wnut17",
)
USE = papa.Task(
    label=None, metric="cosine", head="own", epochs=3, learning_rate=0.05, name="embeddings"
)
KEPT = ("nearest kept", "ten nearest kept", "similarities")
TITLES = ("input-dependent", "order", "probe's F1", *KEPT)
OF_USE = "scores:own"
MEASURES = ("nearest_1", "nearest_10", "similarities")


def embeddings(encoder: TextEncoder, texts: Sequence[str]) -> np.ndarray:
    """Mean-pooled, [texts, width]."""
    return np.stack(
        [state[:, -1].mean(0).numpy() for state in papa.features(encoder, texts, progress=False)]
    )


def orders(
    encoder: TextEncoder,
    found: papa.Measurement,
    of_use: pandas.DataFrame,
    seeds: Sequence[int],
) -> dict[str, list[list[Head]]]:
    """The head orders that the probes had: by λ, by λ of embeddings, and one for each seed at
    random.
    """
    shape = encoder.layers, encoder.heads
    draws = drawn_from("random", 0, tuple(seeds)).values()
    return {
        "lambda": [list(papa.constant_heads(found.head_scores, 0))],
        OF_USE: [list(papa.constant_heads(of_use, 0))],
        "random": [head_order("random", None, *shape, draw) for draw in draws],
    }


def rows(
    encoder: TextEncoder,
    found: papa.Measurement,
    of_use: pandas.DataFrame,
    texts: list[str],
    seeds: list[int],
) -> Iterator[list[str]]:
    """A line for every fraction and order."""
    before, summary = embeddings(encoder, texts), found.summary.set_index(["fraction", "order"])
    for fraction in FRACTIONS:
        for name, drawn in orders(encoder, found, of_use, seeds).items():
            if name != "lambda" and fraction in (0, 1):
                continue  # The order changes nothing.
            kept = []
            for order in drawn:
                heads = order[: constant_count(fraction, len(order))]
                with papa.replaced(encoder, found.constants["average"], heads):
                    kept.append(embedding_fidelity(before, embeddings(encoder, texts)))
            score = summary.loc[(fraction, name)]
            parts = [_said([fidelity[measure] for fidelity in kept]) for measure in MEASURES]
            yield [
                f"{fraction:g}",
                "lambda of embeddings" if name == OF_USE else name,
                f"{score['mean']:.3f} ({score['low']:.3f} to {score['high']:.3f})",
                *parts,
            ]


def _said(found: list[Interval]) -> str:
    """One order's share with its interval over sentences; several orders' mean and range."""
    if len(found) == 1:
        return f"{found[0].mean:.2f} ({found[0].low:.2f} to {found[0].high:.2f})"
    means = [interval.mean for interval in found]
    return f"{np.mean(means):.2f}; orders {min(means):.2f} to {max(means):.2f}"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity")
    parser.add_argument("--rows", type=int, default=300, help="training rows of the probes")
    parser.add_argument("--seeds", type=int, default=2, help="probes, and random orders")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    folder = SHARED / "data" / "wnut17"
    if not folder.is_dir():
        parser.error(f"there is no {folder}: set PAPA_SHARED to the folder with data/wnut17")
    train, validation = (
        pandas.read_json(folder / f"{name}.jsonl", lines=True) for name in ("train", "validation")
    )
    tags = sorted(
        {tag for rows in (train, validation) for tags in rows["ner_tags"] for tag in tags}
    )
    encoder, seeds = papa.load_encoder(EMBEDDED, slots=64), list(range(asked.seeds))
    train_texts, texts = (
        [" ".join(words) for words in rows["tokens"].head(count)]
        for rows, count in ((train, asked.rows), (validation, 600))
    )
    unlabelled = {split: {"text": train_texts} for split in ("train", "validation")}
    of_use = papa.head_scores(encoder, unlabelled, USE, rows=150, seeds=seeds)
    found = papa.measure(
        encoder,
        {"train": train.head(asked.rows), "validation": validation.head(300)},
        replace(TASK, labels=tuple(tags)),
        orders=["lambda", of_use, "random"],
        fractions=FRACTIONS,
        seeds=seeds,
        ranking_rows=150,
        ranking_seeds=seeds,
    )
    print(table(TITLES, rows(encoder, found, of_use, texts, seeds)))


if __name__ == "__main__":
    main()
