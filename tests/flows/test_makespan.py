"""The simulated end of a study, on graphs small enough to be computed by hand."""

from __future__ import annotations

import random

import pytest

from flows.graph import Graph, Node
from flows.makespan import SHARED, makespan
from tasks.step import Step


def never(*_: object) -> Step:
    raise AssertionError("a simulation makes no step")


def node(stage: str, name: str, *needs: Node, parts: int = 1) -> Node:
    return Node(stage, name, 0.0, needs, never, parts)


def graph(*nodes: Node) -> Graph:
    return Graph(nodes, {})


def ends(nodes: list[Node], seconds: dict[str, float], workers: int, **options: float) -> float:
    return makespan(graph(*nodes), seconds, workers, **options).seconds


def test_cells_beside_each_other_fill_the_workers() -> None:
    cells = [node("probe", str(number)) for number in range(5)]
    seconds = {cell.name: 2.0 for cell in cells}
    assert [ends(cells, seconds, workers) for workers in (1, 2, 4, 5, 100)] == [10, 6, 4, 2, 2]


def test_a_chain_takes_its_sum_on_any_number_of_workers() -> None:
    first = node("tokenise", "text")
    second = node("probe", "cell", first)
    found = makespan(graph(first, second), {"text": 3.0, "cell": 4.0}, 8)
    assert (found.seconds, found.chain) == (7, 7)
    assert found.busy == pytest.approx(7 / (8 * 7))


def test_the_urgent_goes_first_though_it_came_last() -> None:
    """λ begins as soon as its average is there, before cells that wait already."""
    average = node("average", "average")
    ranking = node("rank", "rank", average)
    cells = [node("probe", str(number)) for number in range(3)]
    last = node("probe", "of λ", ranking)
    seconds = {"average": 1.0, "rank": 3.0, "of λ": 2.0, **{cell.name: 3.0 for cell in cells}}
    # Worker 1: average 0-1, λ 1-4, a cell 4-7. Worker 2: a cell 0-3, a cell 3-6, the cell of λ 6-8.
    assert ends([average, ranking, *cells, last], seconds, 2) == 8
    # The other way round λ would begin after two cells.
    lazy = [node("average", "average"), *cells]
    after = node("probe", "rank", lazy[0])
    assert ends([*lazy, after, node("probe", "of λ", after)], seconds, 2) == 9


def test_the_shards_of_an_average_are_shared() -> None:
    average = node("average", "average", parts=4)
    seconds = {"average": 8.0}
    assert [ends([average], seconds, workers) for workers in (1, 2, 3, 4, 64)] == [8, 4, 4, 2, 2]


def test_a_training_is_shared_by_as_many_as_have_a_part() -> None:
    ranking = node("rank", "rank", parts=2)
    alone, *others = (ends([ranking], {"rank": 10.0}, workers) for workers in (1, 2, 64))
    assert alone == 10
    assert others == pytest.approx([10 * (1 - SHARED / 2)] * 2)
    found = makespan(graph(ranking), {"rank": 10.0}, 64, alone=("rank",))
    assert found.seconds == found.chain == 10


def test_a_second_training_does_not_wait_for_the_first() -> None:
    """The first takes as many idle workers as it has parts, not all."""
    rankings = [node("rank", str(number), parts=2) for number in range(2)]
    assert ends(rankings, {"0": 10.0, "1": 10.0}, 4) == pytest.approx(10 * (1 - SHARED / 2))


def test_the_driver_submits_one_step_after_the_other() -> None:
    cells = [node("probe", str(number)) for number in range(100)]
    seconds = {cell.name: 1.0 for cell in cells}
    assert ends(cells, seconds, 1000, submitting=0.5) == pytest.approx(100 * 0.5 + 1)
    assert ends(cells, seconds, 1, submitting=0.5) == pytest.approx(0.5 + 100)


def test_every_worker_loads_its_encoder_once() -> None:
    cells = [node("probe", str(number)) for number in range(4)]
    seconds = {cell.name: 2.0 for cell in cells}
    assert [ends(cells, seconds, workers, loading=5.0) for workers in (1, 2, 4)] == [13, 9, 7]


def test_what_the_driver_does_takes_no_worker_and_what_is_cached_no_time() -> None:
    cells = [node("probe", "new"), node("probe", "cached")]
    track = node("track", "track", *cells)
    assert ends([*cells, track], {"new": 2.0, "track": 3.0}, 1) == 5


@pytest.mark.parametrize("seed", range(5))
def test_no_study_beats_its_longest_chain_or_its_work_and_list_scheduling_is_near_them(seed: int) -> None:
    """Graham's bound holds without steps of several parts: at most (work - chain) / workers more than the chain."""
    numbers = random.Random(seed)
    nodes: list[Node] = []
    for number in range(60):
        needs = numbers.sample(nodes, min(len(nodes), numbers.randrange(3)))
        nodes.append(node(numbers.choice(["tokenise", "average", "rank", "probe"]), str(number), *needs))
    seconds = {one.name: numbers.uniform(0.1, 5) for one in nodes}
    work = sum(seconds.values())
    for workers in (1, 2, 7, 64):
        found = makespan(graph(*nodes), seconds, workers)
        assert found.seconds >= max(found.chain, work / workers) - 1e-9
        assert found.seconds <= found.chain + (work - found.chain) / workers + 1e-9
        assert found.busy == pytest.approx(work / (workers * found.seconds))
    assert makespan(graph(*nodes), seconds, 60).seconds == pytest.approx(found.chain)
