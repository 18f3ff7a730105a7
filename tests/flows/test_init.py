"""``papa init``: the study that it writes is valid, names every key, and its comments say what
holds without them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from flows.cli.init import OWN_TASK, example_study
from papa.spec import StudySpec
from papa.spec.file import load_study

_KEY = re.compile(r"# ( *[a-z_0-9]+:.*)")


def with_its_defaults(text: str) -> str:
    """The study with every commented key written out."""
    _, _, after = text.partition("A task of your own, in full:")
    own, _, rest = after.partition("\n\n")
    assert "name: tickets" in own
    shown = [match[1] if (match := _KEY.fullmatch(line)) else line for line in rest.splitlines()]
    return text.partition("# Known by name")[0] + "\n" + "\n".join(shown)


def keys(model: type[BaseModel]) -> dict[str, Any]:
    return {
        name: keys(field.annotation)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        else None
        for name, field in model.model_fields.items()
    }


def test_what_it_writes_is_a_study(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(example_study())
    found = load_study(path)
    assert (found.name, [task.name for task in found.tasks]) == ("my-study", ["reviews"])
    assert all(len(line) <= 120 for line in path.read_text().splitlines())


def test_its_comments_name_every_key_and_what_holds_without_it(tmp_path: Path) -> None:
    short, full = tmp_path / "short.yaml", tmp_path / "full.yaml"
    short.write_text(example_study())
    full.write_text(with_its_defaults(short.read_text()))
    document = yaml.safe_load(full.read_text())
    named = {
        key: dict.fromkeys(value) if isinstance(value, dict) else None
        for key, value in document.items()
    }
    assert named == keys(StudySpec)
    assert load_study(full) == load_study(short)
    changed = tmp_path / "changed.yaml"
    changed.write_text(full.read_text().replace("shard_rows: 1024", "shard_rows: 512"))
    assert load_study(changed) != load_study(short), "the keys are not comments any more"


def test_the_task_of_ones_own_is_one(tmp_path: Path) -> None:
    lines = example_study().partition("in full:")[2].partition("\n\n")[0].splitlines()
    assert yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines)) == [OWN_TASK]
    study = {"name": "own", "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": [OWN_TASK]}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(study))
    assert load_study(tmp_path / "own.yaml").tasks[0].name == "tickets"
