"""Cores that no worker uses."""

from pathlib import Path

from papa.cores import WorkerCores, free_threads


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
