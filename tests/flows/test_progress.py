"""What is said of a study that runs."""

from __future__ import annotations

import re

import pytest

from flows.progress import StudyProgress


def test_lines_say_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    logged: list[str] = []
    progress = StudyProgress(3, shown=True)
    progress.log = logged.append
    with progress.running("probe") as report:
        report(1, 2)
        report(2, 2)
    progress.finished("probe", cached=False)
    progress.finished("aggregate", cached=True)
    assert progress.kept == "2 of 3 steps are kept"
    progress.failed("rank", "no reason")
    assert progress.kept == "2 of 3 steps are kept"
    progress.close()
    assert capsys.readouterr().err.splitlines() == logged
    assert logged[0] == "probe: started | study 0%"
    assert re.fullmatch(r"probe: done in 0\.\d s \| study 33%", logged[1])
    assert logged[2:] == [
        "aggregate: already there | study 67%",
        "rank: failed: no reason | study 100%",
    ]
