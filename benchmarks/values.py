"""What heads are worth together, one after the other becoming constant: passes that begin above the
layers that stay, against whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.rows import Row
from benchmarks.setting import TITLES, encoder, sample
from benchmarks.stages import average
from papa.probes.evaluate import build_probe
from papa.ranking.value import FrozenValue
from papa.timing import Comparison, Part, in_turn

ROWS, STEPS = 64, 12


def one_order(folder: Path) -> Comparison:
    """The first steps of an order that is drawn; the probe's numbers do not matter."""
    cola, model = sample("cola", folder), encoder()
    constants, split = average(cola), cola.corpus.split("train")
    probe = build_probe(model, cola.corpus, cola.task, [0])

    def walked(resume: bool) -> None:
        value = FrozenValue(model, constants, split, np.arange(ROWS), probe, resume=resume)
        left = frozenset(value.heads)
        for index in np.random.default_rng(0).permutation(len(value.heads))[:STEPS]:
            value(left)
            left -= {value.heads[index]}

    return in_turn(partial(walked, True), Part(partial(walked, False)))


def value_rows(folder: Path) -> Iterator[Row]:
    """A draw of Shapley values on CoLA."""
    name = f"values of heads, {STEPS} steps of an order, against whole passes, {TITLES['cola']}"
    yield Row("values", name, 1.4, partial(one_order, folder))
