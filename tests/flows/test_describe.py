"""``papa describe``: short tables, Parquet files, and one sentence where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pandas

from tests.flows.conftest import said, words

ENCODER = "embedded/all-MiniLM-L6-v2"


def test_tables_are_printed_and_written(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("A fine film.\nDull, and then it ends.\n")
    finished = said("describe", "--encoder", ENCODER, "--text", str(texts), "--out", str(out))
    assert finished.code == 0
    assert "separators: separator_mass, mean by layer" in finished.out
    rows = {path.stem: len(pandas.read_parquet(path)) for path in out.iterdir()}
    assert rows == {"similarity": 3 * 72 * 71 // 2, "separators": 3 * 72, "outliers": 2 * 7}


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    table, texts = tmp_path / "table.csv", tmp_path / "texts.txt"
    table.write_text("body\nfine\n")
    texts.write_text("fine\n")
    for given, sentence in [
        (["--text", str(table)], "no column 'text'"),
        (["--text", str(tmp_path / "absent.txt")], "absent.txt"),
        (["--text", str(texts), "--out", str(texts)], "expected a folder"),
        (["--text", str(texts), "--only", "outlier"], "no description 'outlier'"),
    ]:
        finished = said("describe", "--encoder", ENCODER, *given)
        assert finished.code == 1
        (line,) = words(finished)[-1:]
        assert line.startswith("error: ")
        assert sentence in line
