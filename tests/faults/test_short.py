"""The short form of ``make test-faults``: one life with faults that a study outlives by itself."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from tests.faults.life import Live
from tests.faults.points import Fault

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


def test_a_study_outlives_faults(undisturbed: pandas.DataFrame, live: Live, tmp_path: Path) -> None:
    life = live(tmp_path / "store")
    life.live([Fault("worker", "average started"), Fault("Prefect", "rank started")])
    outcomes = [one.outcome for one in life.struck]
    assert outcomes == ["the study went on", "ended in a sentence, run again"]
    (told,) = [line for line in life.log if line.startswith("error: ")]
    assert "Prefect's server on this machine was killed" in told
    assert "steps are kept" in told
    life.check(undisturbed)
