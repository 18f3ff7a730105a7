"""The memory that a study's workers take at least, and what is said where it is not free."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from flows.capacity import LEAST_BYTES, CapacityError, check_memory
from papa.spec.file import load_study
from papa.study.inputs import check_inputs
from tests.flows.conftest import SMALL, said, write_study


def test_too_many_workers_are_refused_before_anything_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = said(
        "check", write_study(tmp_path, SMALL), "--store", str(store), "--workers", "10000"
    )
    assert finished.code == 1
    assert re.search(
        r"error: .* GB or more, .* for 10000 workers .* GB are free: use --workers \d+",
        finished.err,
    )
    assert not (store / "artifacts").exists()


def test_what_is_advised_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=16e9))
    inputs = check_inputs(load_study(Path(write_study(tmp_path, SMALL)), ()))
    with pytest.raises(CapacityError) as refused:
        check_memory(inputs, 10_000)
    advised = int(re.search(r"--workers (\d+)", str(refused.value))[1])
    check_memory(inputs, advised)
    with pytest.raises(CapacityError):
        check_memory(inputs, advised + 1)


def test_averages_of_many_slots_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = SimpleNamespace(available=LEAST_BYTES + 3e7)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    file = Path(write_study(tmp_path, SMALL))
    check_memory(check_inputs(load_study(file, ["tasks.0.slots=32"])), 1)
    with pytest.raises(CapacityError):
        check_memory(check_inputs(load_study(file, ["tasks.0.slots=256"])), 1)


def test_features_that_are_not_stored_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(available=LEAST_BYTES + 3e6)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    file = Path(write_study(tmp_path, SMALL))
    check_memory(check_inputs(load_study(file, ())), 1)
    with pytest.raises(CapacityError):
        check_memory(check_inputs(load_study(file, ["execution.features_budget_gb=0"])), 1)
