"""Progress in a terminal of 80 columns, and what it says at the end."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from flows.progress import StudyProgress, shortened

LONG = "probe · all-MiniLM-L6-v2 · reviews · average · lambda · 36 of 72 heads constant"
OTHER = "probe · all-MiniLM-L6-v2 · reviews · average · lambda · 68 of 72 heads constant"


def screen(width: int) -> list[str]:
    """The bars of a study that runs, as a terminal shows them."""
    settings: dict[str, Any] = {"force_terminal": True, "color_system": "standard", "width": width}
    progress = StudyProgress(Console(**settings, file=io.StringIO()))
    progress.steps = 2
    with progress, progress.running(LONG) as report, progress.running(OTHER) as other:
        report(1, 2)
        other(1, 4)
        assert progress._bars is not None
        shown = Console(**settings, file=io.StringIO())
        shown.print(progress._bars.get_renderable())
    assert isinstance(shown.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.file.getvalue()).splitlines()


def test_bars_names_and_shares_are_there_at_eighty_columns() -> None:
    lines = screen(80)
    assert len(lines) == 3, "a line for each bar"
    assert all(len(line) <= 80 for line in lines)
    study, first, second = lines
    assert study.startswith("study")
    assert first.startswith("probe · …")
    assert "36 of 72 heads constant" in first
    assert "68 of 72 heads constant" in second
    assert " 50%" in first
    assert " 25%" in second
    for line in lines:
        assert sum(character in "━╸╺" for character in line) >= 10, "a bar that can be read"


def test_names_are_whole_where_there_is_room() -> None:
    assert LONG in screen(160)[1]


def test_shortened_names_keep_their_ends() -> None:
    assert shortened(LONG, 40) == "probe · … of 72 heads constant"[:9] + LONG[-31:]
    assert len(shortened(LONG, 40)) == 40
    assert shortened(LONG, len(LONG)) == LONG
    assert shortened("study", 5) == "study"
    assert shortened(LONG, 4) == "prob"


def test_lines_say_how_much_is_done() -> None:
    said: list[str] = []
    progress = StudyProgress(said.append)
    progress.steps = 2
    with progress:
        with progress.running("probe") as report:
            report(1, 1)
        progress.finished("probe", cached=False)
        assert progress.kept == "1 of 2 steps are kept"
        progress.finished("aggregate", cached=True)
    assert said[0] == "probe: started | study 0%"
    assert re.fullmatch(r"probe: done in 0\.\d s \| study 50%", said[1])
    assert said[2] == "aggregate: already there | study 100%"
