"""Constant matrices with parameters in a study, from its file to the artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papa.attention.kinds import Averages, low_rank, relative
from papa.spec import ExecutionSpec
from papa.storage.store import Store
from papa.study.run import run_here
from papa.study.step import with_needs
from tests.flows.conftest import SMALL
from tests.study.test_steps import steps_of
from tests.study.told import Told


def test_matrices_are_made_of_the_average_by_the_steps_of_a_study(tmp_path: Path) -> None:
    low_ranks = [{"kind": "low_rank", "rank": 3, "largest": 5}, {"kind": "low_rank", "rank": 2}]
    kinds: list[Any] = ["average", "relative", *low_ranks, {"kind": "local", "window": 3}]
    (task,) = SMALL["tasks"]
    found = steps_of(
        tasks=[{**task, "slots": 64}],
        constants=kinds,
        orders=["first_to_last"],
        fractions=[0],
        seeds=[0],
    )
    (part,) = found.parts
    made = {own.source for own in part.constants.values() if own.source}
    assert [step.stage for step in made] == ["average"], "what takes no time is no step"
    store = Store(tmp_path / "store")
    store.make()
    run_here(with_needs(made), store, ExecutionSpec(), Told())
    held = {step: step.reference(store) for step in made}
    matrices = {
        label: own.read(own.source and held[own.source], part.encoder, part.task)
        for label, own in part.constants.items()
    }
    average = matrices["average"]
    assert average.counts is not None
    slots = average.slots
    read = Averages(
        average.matrices.double().numpy(), average.counts.numpy(), special=(0, slots - 1)
    )

    def same(label: str, expected: Any) -> bool:
        return np.allclose(matrices[label].matrices.numpy(), expected, atol=1e-6)

    assert same("relative", relative(read))
    assert same("low_rank:3:5", low_rank(read, 3, 5))
    assert same("low_rank:2:0", low_rank(read, 2))
    assert not same("low_rank:2:0", low_rank(read, 3)), "negative control"
    at = np.arange(slots)
    assert same("local:3", np.abs(at[:, None] - at) <= 3)
    seen = matrices["relative"].seen
    assert (average.seen & ~seen).sum() == 0 < (seen & ~average.seen).sum()
