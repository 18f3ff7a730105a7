"""Local files of every format, good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from papa.corpora.local_files import read_file
from papa.errors import DataError

GOOD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "blank lines, and text that looks like dates": (
        "a.jsonl",
        '{"text": "2020-01-01", "words": ["2020-01-02"]}\n\n{"text": "2021-01-01"}\n',
        {"text": ["2020-01-01", "2021-01-01"], "words": [["2020-01-02"], None]},
    ),
    "csv has quotes, line breaks and only strings": (
        "a.csv",
        'text,label\n"a, ""b""\nc",01\nnull,\n',
        {"text": ['a, "b"\nc', "null"], "label": ["01", ""]},
    ),
    "tsv of GLUE has bare quotes": (
        "dev.tsv",
        "sentence\tlabel\nhe said \"no\t1\nit's\t0\n",
        {"sentence": ['he said "no', "it's"], "label": ["1", "0"]},
    ),
    "text keeps headings and skips blank lines": (
        "a.txt",
        "\n = Robert Boulter = \n\nHe is an actor .\u2028Yes .\n   \n",
        {"text": ["= Robert Boulter =", "He is an actor .\u2028Yes ."]},
    ),
    "columns, sentences and document marks": (
        "a.conll",
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
        "Peter NNP I-NP I-PER\n-DOCSTART- -X- -X- O\n",
        {
            "0": [["EU", "rejects"], ["Peter"]],
            "1": [["NNP", "VBZ"], ["NNP"]],
            "2": [["I-NP", "I-VP"], ["I-NP"]],
            "3": [["I-ORG", "O"], ["I-PER"]],
        },
    ),
    "tabs keep spaces inside words": (
        "a.bio",
        "1 000\tO\nNew York\tB-LOC\n",
        {"0": [["1 000", "New York"]], "1": [["O", "B-LOC"]]},
    ),
    "spaces keep other white space inside words": (
        "a.iob",
        "1\u00a0000  O\nNew\u3000York B-LOC\n",
        {"0": [["1\u00a0000", "New\u3000York"]], "1": [["O", "B-LOC"]]},
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), GOOD.values(), ids=GOOD)
def test_files_are_read(tmp_path: Path, name: str, content: str, expected: dict[str, Any]) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_file(tmp_path / name, None, header=True).rows.to_pydict() == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ("a.jsonl", '{"a": 1}\n[1]\n', "line 2 holds a list, not an object"),
        ("a.jsonl", '{"a": 1}\n{"a": "x"}\n', "its lines do not fit one another"),
        ("a.jsonl", "", "is empty"),
        ("a.tsv", "a\tb\n1\t2\n1\n", r"a\.tsv cannot be read as tsv.*Row #3"),
        ("a.conll", "a O\n\nb\n", "line 3 has 1 columns where the lines before have 2"),
        ("a.xyz", "x", r"suffix '\.xyz' names no known format: set source\.format"),
        ("latin.txt", "Café", "not UTF-8"),
        ("latin.jsonl", '{"text": "Café"}\n', "not UTF-8"),
        ("absent.jsonl", None, "there is no file at"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=message) as caught:
        read_file(tmp_path / name, None, header=True)
    assert str(tmp_path / name) in str(caught.value)


def test_tsv_of_cola_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("gj04\t1\t\tOne.\ngj04\t0\t*\tTwo it.\n")
    rows = read_file(tmp_path / "a.tsv", None, header=False).rows
    assert rows.column_names == ["0", "1", "2", "3"]
    assert rows["3"].to_pylist() == ["One.", "Two it."]


def test_parquet_keeps_class_names_of_the_datasets_library(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features(
        {
            "tokens": List(Value("string")),
            "ner_tags": List(ClassLabel(names=["O", "B-X"])),
            "label": ClassLabel(names=["no", "yes"]),
        }
    )
    rows = {"tokens": [["a", "b"]], "ner_tags": [[0, 1]], "label": [1]}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    table = read_file(tmp_path / "a.parquet", None, header=True)
    assert table.class_names == {"ner_tags": ("O", "B-X"), "label": ("no", "yes")}
    assert table.rows.to_pydict() == rows
    pyarrow.parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "plain.parquet")
    assert read_file(tmp_path / "plain.parquet", None, header=True).class_names == {}
