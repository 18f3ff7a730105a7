"""YAML that nobody would write on purpose: a value, or one short sentence, at once."""

from __future__ import annotations

import pytest

from papa.errors import SpecError
from papa.spec.document import read_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a [x]\nb: *a", "an alias (*a) is not read: write the value out"),
        ("a: &a {b: 1}\nc: {<<: *a}", "an alias (*a) is not read"),
        ("[" * 50_000, "is not YAML"),
        ("name: a\ntasks: []\nname: b\n", "'name' stands there a second time"),
        ("a: {b: 1, b: 2}", "'b' stands there a second time"),
        ("a: 2020-13-45", "is not YAML"),
        ("a: " + "9" * 5_000, "is not YAML"),
        ("a: !!python/object/apply:os.system [true]", "is not YAML"),
        ("a: !nosuch 1", "is not YAML"),
        ("a: \0", "is not YAML"),
        ("a: [", "is not YAML"),
        ("--- 1\n--- 2", "is not YAML"),
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


def test_what_is_written_is_read() -> None:
    probe = {"epochs": 2}
    document = {"tasks": [{"name": "a", "probe": probe}, {"name": "b", "probe": probe}, "cola"]}
    assert read_yaml(write_yaml(document), "study.yaml") == document, "it holds no alias"
    assert read_yaml("", "study.yaml") is None
