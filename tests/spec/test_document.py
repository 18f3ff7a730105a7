"""YAML that nobody would write on purpose: a value, or one short sentence, at once."""

from __future__ import annotations

import pytest

from papa.errors import SpecError
from papa.spec.document import read_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a: &a [x]\nb: *a",
            "line 2 holds the alias *a, and no alias is read: write the value out",
        ),
        ("a: &a {b: 1}\nc: {<<: *a}", "line 2 holds the alias *a"),
        ("a: &a [*a]", "line 1 holds the alias *a"),
        ("a: *nosuch", "line 1 holds the alias *nosuch"),
        ("a: *" + "a" * 5_000, "line 1 holds the alias *aaa"),
        ("[" * 30 + "]" * 30, "nested more than 20 deep"),
        ("[" * 50_000, "nested too deeply"),
        ("{a: " * 5_000, "nested too deeply"),
        ("name: a\ntasks: []\nname: b\n", "line 3 gives 'name' a second time"),
        ("a: {b: 1, b: 2}", "line 1 gives 'b' a second time"),
        ("a: 2020-13-45", "holds a value that cannot be read"),
        ("a: " + "9" * 5_000, "holds a value that cannot be read"),
        ("a: !!python/object/apply:os.system [true]", "is not YAML"),
        ("a: !nosuch 1", "is not YAML"),
        ("a: \0", "is not YAML"),
        ("? [a]\n: 1", "has a key that is no text"),
        ("a: [", "is not YAML"),
        ("--- 1\n--- 2", "is not YAML"),
        ("x" * 1_000_001, "has 1,000,001 characters"),
    ],
)
def test_one_short_sentence(text: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_yaml(text, "study.yaml")
    sentence = str(caught.value)
    assert sentence.startswith("study.yaml")
    assert expected in sentence
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 500


def test_what_people_write_is_read() -> None:
    text = "tasks:\n- {name: a, probe: {epochs: 2}}\n- cola  # as it is\n"
    assert read_yaml(text, "study.yaml") == {
        "tasks": [{"name": "a", "probe": {"epochs": 2}}, "cola"]
    }
    assert read_yaml("", "study.yaml") is None


def test_what_is_written_holds_no_alias() -> None:
    probe = {"epochs": 2}
    document = {"tasks": [{"name": name, "probe": probe} for name in "ab"]}
    assert read_yaml(write_yaml(document), "study.yaml") == document
