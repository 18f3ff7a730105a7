"""Files read block by block hold the rows that they hold when read as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from papa.corpora import local_files
from papa.corpora.local_files import read_file
from papa.corpora.table import take_rows
from papa.errors import DataError

ROWS = [
    {"text": f"line {number}, «quoted»", "label": number % 3, "tags": ["a"] * (number % 4)}
    for number in range(500)
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "_SMALL_BLOCK", 2048)
    monkeypatch.setattr(local_files, "_BATCH_ROWS", 64)


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("last", [{}, {"label": 0.5}, {"more": "x"}, {"text": "x" * 10_000}])
def test_jsonl_whose_last_row_may_be_of_another_kind(tmp_path: Path, last: dict) -> None:
    """Another type, a column that only it has, or more text than a block."""
    rows = [*ROWS, {"text": "last", "label": 1, "tags": [], **last}]
    table = read_file(written(tmp_path / "rows.jsonl", rows), None, header=True).rows
    assert table.to_pylist() == [{**dict.fromkeys(last), **row} for row in rows]
    assert last or table.column("text").num_chunks > 3


def test_text_that_looks_like_a_date_in_some_blocks(tmp_path: Path) -> None:
    for order in (1, -1):
        texts = (["2020-01-01"] * 200 + ["no date"] * 200)[::order]
        path = written(tmp_path / "rows.jsonl", [{"text": text} for text in texts])
        assert read_file(path, None, header=True).rows.column("text").to_pylist() == texts


def test_damage_after_the_first_block_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", ROWS)
    with path.open("a") as file:
        file.write('{"text": \n')
    with pytest.raises(DataError, match=r"line 501 is not JSON"):
        read_file(path, None, header=True)


def test_csv_and_text(tmp_path: Path) -> None:
    lines = [f"{number},line {number}" for number in range(500)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,text", *lines]))
    table = read_file(tmp_path / "rows.csv", None, header=True).rows
    assert table.column("text").num_chunks > 1
    assert [f"{row['label']},{row['text']}" for row in table.to_pylist()] == lines
    (tmp_path / "rows.txt").write_text("\n\n".join(lines))
    table = read_file(tmp_path / "rows.txt", None, header=True).rows
    assert table.column("text").num_chunks > 1
    assert table.column("text").to_pylist() == lines


@pytest.mark.parametrize("group", [500, 50])
def test_parquet_with_dictionaries(group: int, tmp_path: Path) -> None:
    texts = [f"line {row // 2}" for row in range(500)]
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(
        pa.table({"text": pa.array(texts).dictionary_encode()}), path, row_group_size=group
    )
    assert read_file(path, None, header=True).rows.column("text").to_pylist() == texts


@pytest.mark.parametrize("count", [1, 64, 400])
def test_rows_taken_from_many_blocks(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("papa.corpora.table._ROWS_AT_ONCE", 64)
    table = read_file(written(tmp_path / "rows.jsonl", ROWS), None, header=True).rows
    chosen = np.random.default_rng(0).permutation(len(ROWS))[:count]
    assert take_rows(table, chosen).to_pylist() == [ROWS[row] for row in chosen]
    assert (
        take_rows(table, chosen).to_pylist() != [ROWS[row] for row in sorted(chosen)] or count == 1
    )
