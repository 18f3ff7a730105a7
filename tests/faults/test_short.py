"""The short form of ``make test-faults``: one life, a fault of each kind that a study is to outlive by itself."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from tests.faults.life import Life
from tests.faults.points import Fault

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


def test_a_study_outlives_faults(study: str, undisturbed: pandas.DataFrame, lives: list[Life], tmp_path: Path) -> None:
    life = Life(study, str(tmp_path / "store"))
    lives.append(life)
    life.live([Fault("Prefect", "average started"), Fault("worker", "rank started"), Fault("driver", "probe started")])
    assert [one.outcome for one in life.struck] == ["was killed, began again"] * 3
    life.check(undisturbed)
