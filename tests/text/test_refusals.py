"""What a task's rows cannot be: each is one sentence that names the file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from papa.errors import DataError
from papa.text.rows import read_rows
from tests.text.conftest import ENTITIES, MLM, WORDS, Make, texts

OF_X = {**ENTITIES, "labels": ["O", "I-X"]}
NUMBERS = {"metric": "spearman"}
FILES: list[tuple[str, str | bytes, str]] = [
    (".jsonl", '{"a": 1}\n{"a": \n', "line 2 is no JSON object"),
    (".jsonl", '{"a": 1}\n[1]\n', "line 2 is no JSON object"),
    (".json", "[1, 2]", "line 1 is no JSON object"),
    (".jsonl", '{"a": 1}\n{"a": "x"}\n', "each column one type in all rows"),
    (".jsonl", '{"text": "a", "label": 99999999999999999999}\n', "which is no class"),
    (".jsonl", "", "has no row: give a train split"),
    (".json", "[]", "has no row: give a train split"),
    (".tsv", "a\tb\n1\t2\n1\n", "line 3 has 1 columns, expected 2"),
    (".csv", "text,label,text\na,0,b\n", "two columns of one name"),
    (".csv", 'text,label\n"a,0\n', "cannot be read as csv"),
    (".csv", "t\u00e4xt,label\na,0\n".encode("latin-1"), "'utf-8' codec can't decode"),
    (".txt", "Caf\u00e9".encode("latin-1"), "'utf-8' codec can't decode"),
    (".conll", "a O\n\nb\n", "line 3 has 1 columns, expected 2"),
    (".conllu", "1\tHe\n", "line 1 has 2 columns, expected 10"),
    (".parquet", b"PAR1" + bytes(64) + b"PAR1", "cannot be read as parquet"),
    (".xyz", "x", "suffix '.xyz' names no known format: set source.format"),
]


def refusal(make_task: Make, *content: Any, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        read_rows(make_task(*content, **settings))
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1
    assert "train." in sentence or "validation." in sentence, "the file is named"
    return sentence


@pytest.mark.parametrize(("suffix", "content", "said"), FILES)
def test_files(make_task: Make, suffix: str, content: str | bytes, said: str) -> None:
    assert said in refusal(make_task, content, suffix=suffix)


def test_files_that_are_not_there(make_task: Make, tmp_path: Path) -> None:
    row = {"text": "a", "label": 0}
    assert "there is no file at" in refusal(make_task, [row], tmp_path / "validation.jsonl")
    assert "has no row: give a validation split" in refusal(make_task, [row], "\n\n")


LABELS: list[tuple[Sequence[Any], Sequence[Any], Sequence[str] | None, str]] = [
    ([0, 1], [0, None], None, "row 2 has no 'label': complete or remove it"),
    ([0, 1], [0, 2], None, "row 2 has 2 as 'label' where the training rows have 0, 1"),
    (["a", "b"], ["c", "d"], None, "row 1 has 'c' as 'label' where the training rows have a, b"),
    (["a", "b"], ["a"], ["a", "x"], "row 2 has 'b' as 'label' where the task knows a, x"),
    ([0, 2], [0], ["no", "yes"], "where the task knows no, yes: correct"),
    ([0, 1], [-1, -1], None, "every 'label' is -1: -1 marks the hidden labels of GLUE"),
    ([0, 1], [-1, -1], ["no", "yes"], "every 'label' is -1: -1 marks the hidden labels of GLUE"),
    ([0, 1], [0, -1, 1], None, "training rows have 0, 1: if it marks rows without agreement"),
    ([0, 1], ["a", "b"], None, "row 1 has 'a' as 'label' where the training rows have 0, 1"),
    ([0.5, 1], [1], None, "row 1 has 0.5 as 'label', which is no class"),
    (["a", ""], ["a"], None, "row 2 has '' as 'label', which is no class"),
    ([[0], [1]], [[0]], None, "row 1 has [0] as 'label', which is no class"),
]


@pytest.mark.parametrize(("train", "validation", "declared", "said"), LABELS)
def test_labels(make_task: Make, train: Any, validation: Any, declared: Any, said: str) -> None:
    assert said in refusal(make_task, texts(*train), texts(*validation), labels=declared)


ROWS: list[tuple[dict[str, Any], list[Any], list[Any], str]] = [
    (NUMBERS, ["a", "b"], ["1.5", "high"], "row 2 has 'high' as 'label' where a regression task"),
    (NUMBERS, ["a"], ["nan"], "needs a number, finite"),
    (NUMBERS, ["a"], [1e300], "needs a number, finite in float32"),
    ({}, ["a"], [date(2020, 1, 1)], "which is no class"),
    ({}, [["a"]], [0], "column 'text' holds list<element: string>, not text"),
    ({"columns": {"text": "texts", "label": "label"}}, ["a"], [0], "no column 'texts' (found:"),
    (MLM, [" "], [0], "every 'text' is blank"),
    ({"metric": "f1"}, ["a"] * 3, [0, 1, 2], "metric f1 needs two classes"),
    (ENTITIES, [["a"], ["b"]], [["O"], ["S-X"]], "row 2 has 'S-X' as 'tags', which is not IOB2"),
    (ENTITIES, [["a"]], [[1]], "row 1 has 1 as 'tags', which is not IOB2"),
    (OF_X, [["a"]], [[3]], "row 1 has 3 as 'tags', which is not IOB2"),
    (OF_X, [["a"]], [[1]], "row 1 has 'B-X' as 'tags' where the task knows O, I-X"),
    (WORDS, [["a"], ["a", "b"]], [["X"], ["X"]], "row 2 has ['a', 'b'] in 'tokens' and ['X'] in"),
    (WORDS, [["a"]], [[None]], "row 1 has None as 'tags', which is no class"),
    (WORDS, ["a b"], [["X", "X"]], "row 1 has 'a b' in 'tokens' and ['X', 'X'] in 'tags'"),
    (WORDS, [[1]], [["X"]], "row 1 has [1] in 'tokens' and ['X'] in 'tags': give a list"),
    (WORDS, [["a"]], [[["X"]]], "which is no class"),
]


@pytest.mark.parametrize(("settings", "texts", "labels", "said"), ROWS)
def test_rows(
    make_task: Make, tmp_path: Path, settings: dict[str, Any], texts: Any, labels: Any, said: str
) -> None:
    names = ("tokens", "tags") if settings.get("kind") == "words" else ("text", "label")
    columns = dict(zip(names, (texts, labels), strict=True))
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "train.parquet")
    assert said in refusal(make_task, tmp_path / "train.parquet", **settings)
