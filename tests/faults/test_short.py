"""The short form of ``make test-faults``: one life with faults that a study outlives by itself."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from tests.faults.life import Live
from tests.faults.points import FOR_GOOD, Fault

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


def test_a_study_outlives_faults(undisturbed: pandas.DataFrame, live: Live, tmp_path: Path) -> None:
    life = live(tmp_path / "store")
    life.live(
        [
            Fault("Prefect", "average started"),
            Fault("worker", "rank started"),
            Fault(FOR_GOOD, "track started"),
        ]
    )
    assert [one.outcome for one in life.struck] == ["the study went on"] * 3
    assert sum("Prefect's server: it ended and is started again" in line for line in life.log) == 1
    (told,) = [line for line in life.log if "Prefect's server does not record the study" in line]
    assert "its record is not whole" in told
    life.check(undisturbed)
