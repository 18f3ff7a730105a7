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


def keys(model: type[BaseModel]) -> dict[str, Any]:
    types = {name: field.annotation for name, field in model.model_fields.items()}
    return {
        name: keys(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        for name, kind in types.items()
    }


def test_its_comments_name_every_key_and_what_holds_without_it(tmp_path: Path) -> None:
    """A task of ones own is one, too."""
    short, full = tmp_path / "short.yaml", tmp_path / "full.yaml"
    short.write_text(text := example_study())
    found = load_study(short)
    assert (found.name, [task.name for task in found.tasks]) == ("my-study", ["reviews"])
    assert all(len(line) <= 120 for line in text.splitlines())

    own, _, rest = text.partition("in full:")[2].partition("\n\n")
    lines = [line.removeprefix("# ") for line in own.splitlines()]
    assert yaml.safe_load("\n".join(lines)) == [OWN_TASK]

    shown = [match[1] if (match := _KEY.fullmatch(line)) else line for line in rest.splitlines()]
    full.write_text(text.partition("# Known by name")[0] + "\n" + "\n".join(shown))
    named = {
        key: dict.fromkeys(value) if isinstance(value, dict) else None
        for key, value in yaml.safe_load(full.read_text()).items()
    }
    assert named == keys(StudySpec)
    assert load_study(full) == found
    full.write_text(full.read_text().replace("shard_rows: 1024", "shard_rows: 512"))
    assert load_study(full) != found, "the keys are not comments any more"
