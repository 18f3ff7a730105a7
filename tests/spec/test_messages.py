"""What a person reads of a study that the specification refuses: all of it, in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

import papa
from papa.errors import CheckError, SpecError
from papa.spec.file import load_study, override, resolve_study

pytestmark = pytest.mark.unchecked
EVERY_KEY = yaml.safe_load(
    (Path(papa.__file__).parents[1] / "docs/generators/every_key.yaml").read_text()
)
ODD = (
    "null", "true", "-1", "0", "1.5", "1e400", "''", "word", "[]", "[[]]", "{}", "{a: b}",
    "[1, 2]", "2001-01-01",
)  # fmt: skip
PYDANTIC = (
    "Input", "should", "valid ", "unable to", "Value error", "Tuple", "String", "List", "Extra",
    "validator",
)  # fmt: skip


def places(value: Any, path: str = "") -> Iterator[str]:
    """Every key of a document."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, below in inside:
        yield f"{path}{key}"
        yield from places(below, f"{path}{key}.")


@pytest.mark.parametrize("place", sorted(places(EVERY_KEY)))
def test_no_value_is_refused_in_anothers_words(place: str, tmp_path: Path) -> None:
    """In a study of one task: that whose key it is."""
    (tmp_path / "paper.csv").touch()
    own = re.match(r"tasks\.(\d)", place)
    index = int(own[1]) if own else 0
    study = {**EVERY_KEY, "tasks": [EVERY_KEY["tasks"][index]]}
    place = place.replace(f"tasks.{index}", "tasks.0")
    resolve_study(study, folder=tmp_path, origin="study.yaml")
    for odd in ODD:
        document = deepcopy(study)
        override(document, f"{place}={odd}")
        try:
            resolve_study(document, folder=tmp_path, origin="study.yaml")
        except SpecError as error:
            said = str(error)
            assert "study.yaml: " in said
            assert not [word for word in PYDANTIC if word in said], (odd, said)


def test_everything_that_is_wrong_is_told_together(tmp_path: Path) -> None:
    study = {
        "name": "a study",
        "encoders": ["embedded/all-MiniLM-L6-v2", 7],
        "tasks": [
            "reviws",
            {"name": "reviews", "slots": 33, "sluts": 32, "probe": {"epochs": "four"}},
        ],
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
        "task 'reviws' is unknown (did you mean 'reviews'?)",
        "'name' is 'a study': use letters",
        "'encoders.1' is 7, expected keys with their values",
        "unknown key 'tasks.1.sluts' (did you mean 'slots'?)",
        "'tasks.1.slots' is 33, expected an even number",
        "'tasks.1.probe.epochs' is 'four', expected a whole number",
        "'seeds' is [], expected 1 or more in it",
        "unknown key 'ordrs' (did you mean 'orders'?)",
        "'execution' is 3, expected keys with their values",
    ):
        assert [sentence for sentence in found if sentence.startswith(expected)], (expected, found)
    assert len(found) == 9
    assert isinstance(raised.value, SpecError)
