"""What heads are worth together, one after the other becoming constant: passes that begin above the
layers that stay, against whole ones. And scores that share a pass, against a pass for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.rows import Row
from benchmarks.setting import TITLES, encoder, sample
from benchmarks.stages import average
from benchmarks.timing import Comparison, Part, in_turn
from papa.probes.evaluate import build_probe
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.streamed import scores_by
from papa.ranking.value import FrozenLosses, LossValue
from papa.spec import ExecutionSpec, RankingSpec
from papa.spec.methods import HEAD_SCORES

ROWS, STEPS = 64, 12


def one_order(folder: Path) -> Comparison:
    """The first steps of an order that is drawn; the probe's numbers do not matter."""
    cola, model = sample("cola", folder), encoder()
    constants, split = average(cola), cola.corpus.split("train")
    probe = build_probe(model, cola.corpus, cola.task, [0])

    def walked(resume: bool) -> None:
        value = LossValue(
            FrozenLosses(model, constants, split, np.arange(ROWS), probe, resume=resume)
        )
        left = frozenset(value.heads)
        for index in np.random.default_rng(0).permutation(len(value.heads))[:STEPS]:
            value(left)
            left -= {value.heads[index]}

    return in_turn(partial(walked, True), Part(partial(walked, False)))


STREAMED = [name for name, method in HEAD_SCORES.items() if method.streamed]


def one_pass(folder: Path) -> Comparison:
    """Every streamed score of some rows."""
    cola, model = sample("cola", folder), encoder()
    ranking, execution = RankingSpec(rows=ROWS), ExecutionSpec()
    asked = Asked(
        model, average(cola), cola.corpus, cola.task, ranking, 0, folder / "scores", execution
    )
    apart = (Part(partial(scores_by, [name], asked)) for name in STREAMED)
    return in_turn(partial(scores_by, STREAMED, asked), *apart)


def value_rows(folder: Path) -> Iterator[Row]:
    """A draw of Shapley values on CoLA, and the scores that read text alone."""
    name = f"values of heads, {STEPS} steps of an order, against whole passes, {TITLES['cola']}"
    yield Row("values", name, 1.4, partial(one_order, folder))
    name = f"{len(STREAMED)} scores of heads in one pass, against a pass each, {TITLES['cola']}"
    yield Row("values", name, 2.0, partial(one_pass, folder))
