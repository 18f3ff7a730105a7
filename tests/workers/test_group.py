"""Laws of a group of workers: whoever computes a part, and whoever is lost, the results are the
same.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from papa.workers.group import WorkerGroup, spread
from tests.workers.parts import EXPECTED, LAYERS, NUMBERS, Part


def test_a_leader_alone_gives_the_results_in_order() -> None:
    with WorkerGroup(SimpleNamespace(layers=LAYERS)).replicas(Part, {"leader": 0}) as replicas:
        found = replicas.map("square", False, range(NUMBERS), [1] * NUMBERS)
    assert [value for value, _ in found] == EXPECTED


def test_an_error_of_a_part_is_not_hidden(minilm: object) -> None:
    with (
        WorkerGroup(minilm).replicas(Part, {"leader": 0}) as replicas,
        pytest.raises(TypeError, match="unsupported operand"),
    ):
        replicas.map("square", False, [None], [1])


@pytest.mark.parametrize(
    ("sizes", "workers", "chosen"),
    [
        ([155, 217, 132, 193], 2, [1, 0, 0, 1]),
        ([1, 1, 1, 1], 2, [0, 1, 0, 1]),
        ([3, 2, 2, 5], 3, [1, 2, 2, 0]),
        ([7, 7], 1, [0, 0]),
        ([], 2, []),
    ],
)
def test_parts_are_spread_by_size(sizes: list[int], workers: int, chosen: list[int]) -> None:
    assert spread(sizes, workers) == chosen
