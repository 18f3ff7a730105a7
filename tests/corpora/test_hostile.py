"""Corpora that nobody would write on purpose: a right result or one sentence that names
the file.
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from papa.corpora.local_files import ROW_BYTES
from papa.corpora.rows import ROW_WORDS, read_rows
from papa.errors import DataError
from papa.spec import TaskSpec
from tests.corpora.conftest import Make

REGRESSION = {
    "metric": "spearman",
    "kind": "pair",
    "columns": {"text": "a", "text_pair": "b", "label": "label"},
}
WORDS = {"kind": "words", "columns": {"words": "words", "label": "tags"}, "metric": "token_f1"}


def refused(task: TaskSpec, *expected: str) -> None:
    with pytest.raises(DataError) as caught:
        read_rows(task)
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 800
    for part in (*expected, "rows."):
        assert part in sentence, sentence


def rows_in(tmp_path: Path, content: str | bytes, suffix: str) -> Path:
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(tmp_path: Path, columns: dict[str, Any], **metadata: str) -> Path:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table(columns).replace_schema_metadata(metadata or None), path)
    return path


@pytest.mark.parametrize(
    ("suffix", "content", "expected"),
    [
        ("csv", "text,label,text\na,0,b\n", "has 2 columns named 'text'"),
        ("csv", "t\u00e4xt,label\na,0\n".encode("latin-1"), "is not UTF-8"),
        ("csv", "text,label\nt\u00e4xt,0\n".encode("latin-1"), "cannot be read as csv"),
        ("jsonl", '{"text": "a", "label": [0]}\n', "holds list<item: int64>, not labels"),
        ("jsonl", '{"text": "a", "label": {"b": 0}}\n', "not labels"),
        ("jsonl", '{"text": "a", "label": 99999999999999999999}\n', "'label'"),
        ("jsonl", '{"text": ["a"], "label": 0}\n', "holds list<item: string>, not text"),
        ("jsonl", '{"text": "a", "label": 0, "text": "b"}\n', "text"),
        ("jsonl", "[" * 20_000 + "]" * 20_000 + "\n", "line 1 is nested 20,000 deep"),
        (
            "jsonl",
            '{"text": "a", "label": 0}\n{"label": ' + '{"a":' * 500 + "0" + "}" * 501 + "\n",
            "line 2 is nested 501",
        ),
        (
            "jsonl",
            '{"text": "' + "a" * ROW_BYTES + '", "label": 0}\n',
            f"line 1 has more than {ROW_BYTES:,} bytes",
        ),
        ("jsonl", '{"text": "a", "label": 0}\n\0\n', "line 2 is not JSON"),
        (
            "csv",
            "text,label\n" + "a" * (ROW_BYTES + 1) + ",0\n",
            f"line 2 has more than {ROW_BYTES:,} bytes",
        ),
        ("csv", 'text,label\n"' + "a,0\n" * 100_000, "cannot be read as csv"),
        (
            "csv",
            'text,label\n"' + "a\n" * (2 * ROW_BYTES) + '",0\n',
            f"a row has more than {ROW_BYTES:,} bytes",
        ),
        ("tsv", "text\tlabel\n" + "a" * (ROW_BYTES + 1) + "\t0\n", "line 2 has more than"),
        ("parquet", b"PAR1" + b"\0" * 64 + b"PAR1", "cannot be read as Parquet"),
    ],
)
def test_one_sentence(
    make_task: Make, tmp_path: Path, suffix: str, content: str | bytes, expected: str
) -> None:
    refused(make_task(rows_in(tmp_path, content, suffix)), expected)


@pytest.mark.parametrize("size", [300_000, ROW_BYTES - 100])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_a_row_longer_than_a_block_is_read(
    make_task: Make, tmp_path: Path, suffix: str, size: int
) -> None:
    long = "a" * size
    lines = {
        "jsonl": "".join(
            json.dumps({"text": text, "label": row}) + "\n" for row, text in enumerate(("b", long))
        ),
        "csv": f"text,label\nb,0\n{long},1\n",
        "tsv": f"text\tlabel\nb\t0\n{long}\t1\n",
    }
    rows = read_rows(make_task(rows_in(tmp_path, lines[suffix], suffix)))
    assert rows.train["text"].to_pylist() == ["b", long]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([date(2020, 1, 1)]), "not labels"),
        (pa.array([2**64 - 1], pa.uint64()), "a number beyond 64 bits"),
        (pa.array([Decimal("1.5")]), "not labels"),
        (pa.array([b"a"]), "not labels"),
        (pa.array([{"a": 1}]), "not labels"),
        (pa.nulls(1), "row 1 has no 'label'"),
        (pa.array([1e300]), "'label'"),
    ],
)
def test_labels_of_every_type(
    make_task: Make, tmp_path: Path, labels: pa.Array, expected: str
) -> None:
    refused(make_task(parquet(tmp_path, {"text": ["a"], "label": labels})), expected)


def test_numbers_are_read(make_task: Make, tmp_path: Path) -> None:
    """The control, and what float32 rounds."""
    path = parquet(
        tmp_path, {"a": ["a"] * 3, "b": ["b"] * 3, "label": pa.array([" 1.5", "-2e3", "16777217"])}
    )
    assert read_rows(make_task(path, **REGRESSION)).train["label"].to_pylist() == [
        1.5,
        -2000.0,
        16777216.0,
    ]


@pytest.mark.parametrize(
    ("words", "tags", "expected"),
    [
        ([[["a"]]], [[0]], "not lists of words"),
        ([[1]], [[0]], "holds list<element: int64>, not lists of words"),
        ([["a"]], [[[0]]], "not labels"),
        ([["a"]], [0], "not one list a row"),
        (["a"], [[0]], "not one list a row"),
        (
            [["a"] * (ROW_WORDS + 1)],
            [[0] * (ROW_WORDS + 1)],
            f"row 1 has {ROW_WORDS + 1:,} items in 'words'",
        ),
    ],
)
def test_words_of_every_type(
    make_task: Make, tmp_path: Path, words: Any, tags: Any, expected: str
) -> None:
    refused(make_task(parquet(tmp_path, {"words": words, "tags": tags}), **WORDS), expected)
