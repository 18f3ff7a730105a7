"""Work in shards on all workers: results of all, one sum of progress, and an error that ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from papa.progress import Progress
from papa.tasks.shards import Shard, run_shards
from papa.worker import Worker

SIZES = (3, 1, 4)


class TwoWorkers(Worker):
    """As this process, twice."""

    size = 2


def square(*, number: int, power: int, progress: Progress) -> int:
    progress(1, 2)
    progress(2, 2)
    return number**power


def fail(*, number: int, power: int, progress: Progress) -> int:
    raise ZeroDivisionError


def results_of(function: Callable[..., int], progress: Progress) -> list[int]:
    shards = [Shard({"number": size}, size) for size in SIZES]
    options: Mapping[str, Any] = {"power": 2}
    return sorted(
        run_shards(
            TwoWorkers("cpu"), function, shards, arguments=options, model=None, progress=progress
        )
    )


def test_every_shard_gives_its_result_once() -> None:
    assert results_of(square, lambda done, total: None) == [1, 9, 16]


def test_progress_counts_the_work_of_all_shards() -> None:
    calls: list[tuple[int, int]] = []
    results_of(square, lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {sum(SIZES)}
    assert max(calls) == (sum(SIZES), sum(SIZES))


def test_an_error_of_a_shard_ends_the_step() -> None:
    with pytest.raises(ZeroDivisionError):
        results_of(fail, lambda done, total: None)
