"""The memory that a study's workers take at least, and what is said where it is not free."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from flows.capacity import LEAST_BYTES, CapacityError, check_disk, check_memory
from papa.encoders.reference import embedded_folder
from papa.errors import problems_of
from papa.spec.file import load_study
from papa.study.inputs import check_inputs
from papa.study.sizes import Size
from tests.flows.conftest import SMALL, refusal, said, write_study


def test_too_many_workers_are_refused_before_anything_runs(tmp_path: Path) -> None:
    study, store = write_study(tmp_path, SMALL), tmp_path / "store"
    told = refusal(said("check", study, "--store", str(store), "--workers", "10000"))
    assert told.startswith("error: memory: a worker takes ")
    assert re.search(r" for 10000 workers .* GB are free: use --workers \d+", told)
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


def least(monkeypatch: pytest.MonkeyPatch, study: str, *overrides: str) -> int:
    """The free memory with which one worker is let go, to the megabyte."""
    inputs = check_inputs(load_study(Path(study), overrides))

    def suffices(megabytes: int) -> bool:
        free = SimpleNamespace(available=megabytes * 1e6)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
        return not problems_of("memory", lambda: check_memory(inputs, 1))

    return bisect_left(range(10_000), True, key=suffices)


def test_what_takes_memory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = write_study(tmp_path, SMALL)
    weights = (embedded_folder() / "model.safetensors").stat().st_size
    probe = 16 * 7 * 384**2
    own = least(monkeypatch, study)
    assert own == pytest.approx((LEAST_BYTES + weights + 2 * probe) / 1e6, abs=1)
    assert least(monkeypatch, study, "seeds=[0,1,2]") == pytest.approx(own + probe / 1e6, abs=1)
    more = ("execution.features_budget_gb=0", "tasks.0.slots=256", "tasks.0.slots=512")
    streamed, *averaged = (least(monkeypatch, study, setting) for setting in more)
    assert streamed > own
    assert own < averaged[0] < averaged[1]


def test_a_disk_that_is_too_small_is_said(tmp_path: Path) -> None:
    study = write_study(tmp_path, SMALL)
    large, small = (
        check_inputs(load_study(Path(study), [f"execution.features_budget_gb={budget}"]))
        for budget in (1e12, 1)
    )
    rows = 2 * psutil.disk_usage(str(tmp_path)).free // (32 * 7 * 384 * 4)
    many = {text: Size(rows, 0, 32.0) for text in large.sizes}
    with pytest.raises(
        CapacityError, match=r"take about .* GB for each of 1 workers, and .* free in .*budget_gb"
    ):
        check_disk(replace(large, sizes=many), 1, tmp_path / "not" / "there")
    check_disk(replace(small, sizes=many), 1, tmp_path)
