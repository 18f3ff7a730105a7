"""Everything that the specification refuses of a study, told together."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from papa.errors import CheckError, SpecError
from papa.spec.file import load_study


def test_everything_that_is_wrong_is_told_together(tmp_path: Path) -> None:
    study = {
        "name": "a study",
        "encoders": ["embedded/all-MiniLM-L6-v2", 7],
        "tasks": [{"name": "reviews", "slots": 33, "sluts": 32, "probe": {"epochs": "four"}}],
        "seeds": [],
        "ordrs": ["lambda"],
        "execution": 3,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(CheckError) as raised:
        load_study(tmp_path / "study.yaml")
    found = [
        problem.removeprefix(f"{tmp_path / 'study.yaml'}: ") for problem in raised.value.problems
    ]
    for expected in (
        "'name': String should match pattern",
        "'encoders.1': Input should be a valid dictionary",
        "unknown key 'tasks.0.sluts' (did you mean 'slots'?)",
        "'tasks.0.slots': Input should be a multiple of 2, found 33",
        "'tasks.0.probe.epochs': Input should be a valid integer",
        "'seeds': Tuple should have at least 1 item",
        "unknown key 'ordrs' (did you mean 'orders'?)",
        "'execution': Input should be a valid dictionary",
    ):
        assert [sentence for sentence in found if sentence.startswith(expected)], (expected, found)
    assert len(found) == 8
    assert isinstance(raised.value, SpecError)
