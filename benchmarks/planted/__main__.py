"""``python -m benchmarks.planted``: which score of heads finds the heads that a model needs.

Trains models in which the needed heads are known, scores all heads by every method with every
substitute, prints AUROC by kind of output, and writes ``measured.csv`` if all kinds are asked for.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas
import torch
from scipy.stats import bootstrap

import papa
from benchmarks.planted.kinds import PlantedKind, kinds
from benchmarks.planted.scores import (
    METHODS,
    READ_SUBSTITUTE,
    SUBSTITUTES,
    ScoredModel,
    scored_at_random,
    scored_by_integrated_gradients,
    scored_by_papa,
)
from benchmarks.planted.training import (
    PlantedModel,
    holds_what_was_planted,
    train_planted_model,
)

RESULTS = Path(__file__).with_name("measured.csv")
ATTEMPTS = 3
"""How often a model is trained anew, with another seed, if it does not hold what was planted."""


def planted_models(layers: int, seeds: int, names: list[str]) -> Iterator[PlantedModel]:
    """Models of every kind, each with what was planted; others are reported and left out."""
    for kind in kinds(layers):
        if names and kind.name not in names:
            continue
        for seed in range(seeds):
            planted = verified_model(kind, layers, seed)
            if planted is None:
                print(f"{kind.name}, {layers} layers, seed {seed}: not learned, left out")
            else:
                yield planted


def verified_model(kind: PlantedKind, layers: int, seed: int) -> PlantedModel | None:
    """A model in which the planted heads do the work, or None after some attempts."""
    for attempt in range(ATTEMPTS):
        planted = train_planted_model(kind, layers, seed + 1_000 * attempt)
        if all(holds_what_was_planted(planted, name) for name in ("average", "zeros")):
            return planted
    return None


def scored(planted: PlantedModel) -> Iterator[ScoredModel]:
    """Every score of heads on one model, with every substitute that it depends on."""
    for substitute in SUBSTITUTES:
        for method in METHODS:
            if method in READ_SUBSTITUTE or substitute == "average":
                try:
                    yield scored_by_papa(planted, method, substitute)
                except papa.PapaError as error:
                    print(f"  {method}, {substitute}: {error}", flush=True)
        yield scored_at_random(planted, substitute)
    yield scored_by_integrated_gradients(planted)


def mean_with_interval(values: pandas.Series) -> str:
    """A mean with its 95 % bootstrap interval over models."""
    known = values.dropna().to_numpy()
    if known.size == 0:
        return "–"
    if known.size < 3 or np.ptp(known) == 0:
        return f"{known.mean():.2f}"
    interval = bootstrap((known,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return f"{known.mean():.2f} ({interval.low:.2f} to {interval.high:.2f})"


def table(results: pandas.DataFrame, columns: str) -> str:
    """AUROC by method and substitute, with a column for each value of ``columns``."""
    values = list(dict.fromkeys(results[columns]))
    lines = [
        f"| method | substitute | all | {' | '.join(values)} | coverage | passes |",
        "|" + "---|" * (len(values) + 5),
    ]
    for (method, substitute), rows in results.groupby(["method", "substitute"], sort=False):
        cells = [
            mean_with_interval(rows.loc[rows[columns] == value, "auroc"]).split(" ")[0]
            for value in values
        ]
        coverage = rows["coverage"].dropna()
        lines.append(
            f"| {method} | {substitute} | {mean_with_interval(rows['auroc'])} | "
            f"{' | '.join(cells)} | {f'{coverage.mean():.2f}' if len(coverage) else '–'} | "
            f"{rows['passes'].mean():.0f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Train, score, and write the results and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="models of each kind and size")
    parser.add_argument("--layers", type=int, nargs="*", default=[2, 3], help="sizes of models")
    parser.add_argument("--kinds", nargs="*", default=[], help="kinds to train (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: list[ScoredModel] = []
    for layers in options.layers:
        for planted in planted_models(layers, options.seeds, options.kinds):
            print(f"{planted.kind.name}, {layers} layers: loss {planted.loss:.3f}", flush=True)
            results += scored(planted)
    frame = pandas.DataFrame(results)
    print(table(frame, "output"))
    if not options.kinds:
        frame.round(4).to_csv(RESULTS, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
