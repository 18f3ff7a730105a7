"""``python -m benchmarks.planted.limits``: how often heads are let go that cost more than allowed.

Trained models are searched (``papa.search_heads``), and measured by two substitutes and two orders
(``papa.measure``, then ``heads(max_drop=)`` of all four lines at once), on texts that are drawn
anew for each run. What a set of heads truly costs is its cost on many texts. The limit lies a
little below the cost of some set, the hardest case. A run errs if it lets any set go that costs
more than the limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch
from torch import Tensor
from transformers.utils import ModelOutput

import papa
from benchmarks.planted.kinds import Head
from benchmarks.planted.scores import batches, measured_cost
from benchmarks.planted.training import ModelRequest, PlantedModel, verified_model
from papa.resources import usable_cores
from papa.spec.orders import Cell

KINDS = ("label head, loud decoys", "redundant pair", "content and position")
LAYERS = 3
TEXTS = 256
"""Texts of a run."""
FIRST_TEXTS = 64
"""Texts that heads are ranked on, and that averages come of: the same in all runs."""
MANY_TEXTS = 16_384
"""Texts for the true cost of a set of heads."""
BELOW = 0.97
"""The limit, as a share of the cost that it is just below."""
LEAST_COST = 0.005
"""Smaller costs are not known well enough from ``MANY_TEXTS``: no limit lies below one."""
SUBSTITUTES = ("average", "zeros")
ORDERS = ("output_distance", "first_to_last")
KEEP = (1.0, 0.875, 0.75, 0.5, 0.25, 0.0)


def probability_of_label(outputs: ModelOutput, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the probability of each text's label: the score of all runs."""
    return outputs["logits"].softmax(-1).gather(-1, batch["labels"][:, None])[:, 0]


def labelled(planted: PlantedModel, texts: int, seed: int) -> list[dict[str, Tensor]]:
    """Return texts with their labels."""
    return batches(planted, texts, seed, with_labels=True)


class TrueScores:
    """The scores of a model on many texts; each set of heads is computed once."""

    def __init__(self, planted: PlantedModel) -> None:
        self._planted = planted
        ids, labels = planted.kind.draw(MANY_TEXTS, torch.Generator().manual_seed(2))
        self._texts = {"input_ids": ids, "labels": labels}
        self._scores: dict[tuple[str, frozenset[Head]], float] = {}

    def score(self, heads: Sequence[Head], substitute: str) -> float:
        """Return the score with these heads replaced."""
        key = (substitute, frozenset(heads))
        if key not in self._scores:
            model = self._planted.model
            data = labelled(self._planted, FIRST_TEXTS, seed=1)
            with torch.no_grad(), papa.ablated(model, heads, substitute=substitute, data=data):
                scores = probability_of_label(model(**self._texts), self._texts)
            self._scores[key] = float(scores.double().mean())
        return self._scores[key]

    def cost(self, heads: Sequence[Head], substitute: str) -> float:
        """Return how much the score falls with these heads replaced."""
        return self.score([], substitute) - self.score(heads, substitute)


def search_row(planted: PlantedModel, runs: int) -> str:
    """Return how often searches err, how many heads they find, and their passes beside those of
    trying every number of heads.
    """
    first_texts = labelled(planted, FIRST_TEXTS, seed=1)
    scores = papa.head_scores(
        planted.model, first_texts, method="effect", score=probability_of_label, progress=False
    )
    order = papa.constant_heads(scores, keep=0)
    truth = TrueScores(planted)
    costs = np.array([truth.cost(order[:count], "average") for count in range(len(order) + 1)])
    limit = BELOW * float(costs[costs >= LEAST_COST].min())
    errors = 0
    passes = 0.0
    numbers_found: list[int] = []
    for run in range(runs):
        with measured_cost(planted.model) as cost:
            search = papa.search_heads(
                planted.model,
                labelled(planted, TEXTS, seed=100 + run),
                scores=scores,
                max_effect=limit,
                substitute_data=first_texts,
                score=probability_of_label,
                progress=False,
            )
        passes += cost.texts / TEXTS
        numbers_found.append(len(search.heads))
        errors += bool(costs[numbers_found[-1]] > limit)
    largest = int(np.flatnonzero(costs <= limit).max())
    share = passes / runs / (len(order) + 1)
    return (
        f"{planted.kind.name}, limit {limit:.4f}: {errors} of {runs} searches err; "
        f"{np.mean(numbers_found):.1f} of {largest} heads found, by {share:.3f} of the passes of "
        "trying every number"
    )


def lines_row(planted: PlantedModel, runs: int) -> str:
    """Return how often measurements of four lines err, and which share of the sets that cost less
    than the limit they let go.
    """
    truth = TrueScores(planted)
    drops = {
        cell: truth.cost(heads, cell.constants) / truth.score([], cell.constants)
        for cell, heads in measured_lines(planted, run=0).constant_heads.items()
        if heads  # Nothing is constant in the others. All seeds have the same heads.
    }
    limit = BELOW * min(drop for drop in drops.values() if drop >= LEAST_COST)
    is_allowed = {cell: drop <= limit for cell, drop in drops.items()}
    errors = 0
    let_go = 0
    for run in range(runs):
        frame = measured_lines(planted, run).heads(max_drop=limit)
        frame = frame.assign(encoder=type(planted.model).__name__, task="data")
        within = [
            Cell.from_row(row) for row in frame[frame["verdict"] == "within"].to_dict("records")
        ]
        errors += not all(is_allowed[cell] for cell in within)
        let_go += sum(is_allowed[cell] for cell in within)
    share = let_go / runs / sum(is_allowed.values())
    return (
        f"{planted.kind.name}, limit {limit:.4f}: {errors} of {runs} measurements of "
        f"{len(SUBSTITUTES) * len(ORDERS)} lines err; {share:.2f} of the sets that cost less go"
    )


def measured_lines(planted: PlantedModel, run: int) -> papa.Measurement:
    """Measure the model by each substitute and order on the texts of a run."""
    return papa.measure(
        planted.model,
        {
            "train": labelled(planted, FIRST_TEXTS, seed=1),
            "validation": labelled(planted, TEXTS, seed=100 + run),
        },
        substitutes=SUBSTITUTES,
        orders=ORDERS,
        keep=KEEP,
        probe_seeds=[0, 1],
        score=probability_of_label,
        progress=False,
    )


def rows_of_kind(kind: str, runs: int) -> list[str]:
    """Return the rows of one kind of models."""
    torch.set_num_threads(1)
    planted = verified_model(ModelRequest(kind, LAYERS, seed=0))
    if planted is None:
        return [f"{kind}: not learned, left out"]
    return [search_row(planted, runs), lines_row(planted, runs)]


def main() -> int:
    """Train a model of each kind, and print its rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted.limits")
    parser.add_argument("--runs", type=int, default=100, help="of each kind")
    runs = parser.parse_args().runs
    with ProcessPoolExecutor(usable_cores(), mp_context=get_context("spawn")) as pool:
        for rows in pool.map(rows_of_kind, KINDS, [runs] * len(KINDS)):
            print(*rows, sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
