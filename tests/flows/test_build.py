"""From a study to its graph: which cells share a step, and which have one per seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from flows.build import build_graph
from flows.graph import Graph, Node
from flows.inputs import check_inputs
from papa.ranking import head_order
from papa.spec.file import resolve_study
from papa.storage.artifacts import ArtifactReference, published, reference
from tasks.probe import Probe
from tasks.rank import LAMBDA
from tests.flows.conftest import SMALL

HEADS = 72


def graph_of(**changes: Any) -> Graph:
    study = resolve_study({**SMALL, **changes}, folder=Path(), origin="test")
    return build_graph(study, check_inputs(study), "sqlite://")


def steps(nodes: Sequence[Node]) -> list[Probe]:
    """What scores a cell, where whatever it builds on is there."""
    found = [node.step([ArtifactReference("/", need.name) for need in node.needs]) for node in nodes]
    return [step for step in found if isinstance(step, Probe)]


def test_random_orders_are_drawn_for_each_seed() -> None:
    graph = graph_of(orders=["random", "first_to_last"], seeds=[0, 1, 2], fractions=[1, 0.5, 0.25, 0])
    cells = {(cell.order, cell.fraction): steps(nodes) for cell, nodes in graph.cells.items()}
    for fraction, count in ((0.5, 36), (0.25, 54)):
        drawn = cells["random", fraction]
        assert [step.seeds for step in drawn] == [(0,), (1,), (2,)]
        assert {len(step.heads) for step in drawn} == {count}
        assert len({frozenset(step.heads) for step in drawn}) == 3
    for half, quarter in zip(cells["random", 0.5], cells["random", 0.25], strict=True):
        assert set(half.heads) < set(quarter.heads), "one order a seed, at every fraction"
    for order, fraction in (("first_to_last", 0.5), ("random", 1), ("random", 0)):
        (shared,) = cells[order, fraction]
        assert shared.seeds == (0, 1, 2)
    for fraction in (0, 1):
        of_orders = [nodes for cell, nodes in graph.cells.items() if cell.fraction == fraction]
        assert of_orders[0] == of_orders[1], "with all or no head constant the order does not matter"
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)


def test_heads_become_constant_by_the_mean_over_seeds(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    lambdas = numbers.random((3, 1, 6, 12), np.float32)
    for seed, of_seed in enumerate(lambdas):
        with published(tmp_path / f"rank-{seed}", {}) as folder:
            save_file({"lambda_by_epoch": of_seed}, folder / LAMBDA)
    graph = graph_of(orders=["lambda"], fractions=[0.5], ranking={"seeds": [0, 1, 2]})
    (nodes,) = graph.cells.values()
    assert [need.name.rpartition(" · ")[2] for need in nodes[0].needs if need.stage == "rank"] == [
        "seed 0",
        "seed 1",
        "seed 2",
    ]
    rankings = iter([reference(tmp_path / f"rank-{seed}") for seed in range(3)])
    step = nodes[0].step(
        [next(rankings) if one.stage == "rank" else ArtifactReference("/", one.name) for one in nodes[0].needs]
    )
    assert isinstance(step, Probe)
    assert step.heads == tuple(head_order("lambda", lambdas.astype(np.float64).mean(axis=(0, 1)), 6, 12)[:36])
    assert all(set(step.heads) != set(head_order("lambda", one[0], 6, 12)[:36]) for one in lambdas)
    assert len(step.origins()) == 3


def test_random_orders_follow_from_the_seeds_of_study_and_ranking() -> None:
    def drawn(**changes: Any) -> list[Probe]:
        (nodes,) = graph_of(orders=["random"], fractions=[0.5], **changes).cells.values()
        return steps(nodes)

    first = drawn(seeds=[3, 5])
    assert [step.heads for step in first] == [
        tuple(head_order("random", None, 6, 12, (0, seed))[:36]) for seed in (3, 5)
    ]
    assert first[1].heads == drawn(seeds=[5])[0].heads, "other seeds beside it change nothing"
    assert first[0].heads != drawn(seeds=[3], ranking={"seeds": [1, 0]})[0].heads
