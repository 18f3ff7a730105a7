"""YAML that nobody would write on purpose: a value, or one short sentence, at once."""

from __future__ import annotations

import pytest

from papa.errors import SpecError
from papa.spec.document import read_yaml

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, "holds more than 50,000 values, its aliases written out"),
        ("a: &a [*a]", "holds an alias of itself"),
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
        ("a: *nosuch", "is not YAML"),
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
    text = "probe: &probe {epochs: 2}\ntasks:\n- {name: a, probe: *probe}\n- {name: b, probe: *probe}\n"
    tasks = [{"name": name, "probe": {"epochs": 2}} for name in "ab"]
    assert read_yaml(text, "study.yaml") == {"probe": {"epochs": 2}, "tasks": tasks}
    assert read_yaml("", "study.yaml") is None
