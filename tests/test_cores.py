"""Cores that no worker uses."""

from pathlib import Path
from threading import Barrier, Event, get_ident

import pytest

from papa.cores import WorkerCores, free_threads, map_in_threads


def test_outside_of_a_pool_there_is_one_thread() -> None:
    assert free_threads() == 1


def test_a_worker_alone_has_all_cores(tmp_path: Path) -> None:
    first, second = (WorkerCores(tmp_path, number, 2) for number in (0, 1))
    with first.used():
        assert free_threads() == first.threads() == 2
        with second.used():
            assert first.threads() == second.threads() == 1
        assert first.threads() == 2
    assert free_threads() == 1


def test_workers_that_compute_share_unused_cores(tmp_path: Path) -> None:
    first, second = (WorkerCores(tmp_path, number, 4) for number in (0, 1))
    with first.used(), second.used():
        assert first.threads() == second.threads() == 2


def test_the_file_of_a_worker_that_was_killed_counts_as_unused(tmp_path: Path) -> None:
    (tmp_path / "7.lock").touch()
    with WorkerCores(tmp_path, 0, 2).used():
        assert free_threads() == 2


def test_calls_in_threads_answer_in_the_order_of_their_arguments() -> None:
    both_run = Barrier(2)

    def wait_and_add(first: int, second: int) -> int:
        both_run.wait(timeout=60)
        return first + second

    assert map_in_threads(wait_and_add, [1, 2], [10, 20]) == [11, 22]


def test_threads_are_kept_for_the_next_calls() -> None:
    both_run = Barrier(2)

    def wait_and_name(_: int) -> int:
        both_run.wait(timeout=60)
        return get_ident()

    first, second = (set(map_in_threads(wait_and_name, [0, 1])) for _ in range(2))
    assert first == second
    assert get_ident() not in first


def test_all_calls_have_ended_when_one_has_failed() -> None:
    failed = Event()
    ended = []

    def fail_or_wait(number: int) -> None:
        if number == 0:
            failed.set()
            raise ValueError(number)
        failed.wait(timeout=60)
        ended.append(number)

    with pytest.raises(ValueError, match="0"):
        map_in_threads(fail_or_wait, [0, 1])
    assert ended == [1]


def test_a_single_call_runs_in_the_calling_thread() -> None:
    assert map_in_threads(lambda _, __: get_ident(), ["model", "unused model"], ["batch"]) == [
        get_ident()
    ]
