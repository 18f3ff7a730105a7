"""What a running study shows of its steps."""

import pytest

from papa.flows import progress
from papa.flows.progress import StudyProgress


@pytest.mark.parametrize(
    ("seconds_between_notes", "shares"), [(0.0, ["25% done", "50% done"]), (3600.0, [])]
)
def test_a_long_step_shows_its_share(
    seconds_between_notes: float, shares: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_NOTE_SECONDS", seconds_between_notes)
    lines: list[str] = []
    study = StudyProgress(2)
    study.log = lines.append
    with study.running("sweep_heads") as report:
        for done in (0, 1, 2, 4):
            report(done, 4)
    study.finished("sweep_heads", computed=True)
    sentences = [line.partition(": ")[2].partition(" | ")[0] for line in lines]
    assert sentences[:-1] == ["started", *shares]
    assert lines[-1].endswith("study 50%")
