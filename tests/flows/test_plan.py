"""What a plan says of studies whose encoders and corpora are not at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flows.conftest import said

WHOLE = Path(__file__).resolve().parents[2] / "studies" / "whole.yaml"


def test_the_whole_paper_is_planned_without_a_network(tmp_path: Path) -> None:
    """6 encoders × 6 tasks: 36 corpora, averages and rankings, 5 fractions each."""
    finished = said("plan", str(WHOLE), "--store", str(tmp_path))
    assert finished.code == 0, finished.err
    assert finished.out.count("│ to run │") >= 3 * 36 + 180
    assert re.search(r"0 of \d+ steps are cached; \d+ would run\.", finished.out)
    assert not list(tmp_path.iterdir())


@pytest.mark.server
def test_a_plan_says_how_long_such_steps_took_here(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    changed = said("plan", study, "--store", str(store), "--set", "tasks.0.probe.epochs=2")
    assert re.search(r"would run, of which \d took [\d.]+ s of a worker here\.", changed.out)
