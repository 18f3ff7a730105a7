"""``papa describe``: short tables, Parquet files, and one sentence where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from papa.descriptions.seen import ATTENTIONS
from tests.finished import finish_study
from tests.flows.conftest import SMALL, said, words, write_study

ENCODER = "embedded/all-MiniLM-L6-v2"


def test_tables_are_printed_and_written(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("A fine film.\nDull, and then it ends.\n")
    finished = said("describe", "--encoder", ENCODER, "--text", str(texts), "--out", str(out))
    assert finished.code == 0
    assert "separators: separator_mass, mean by layer" in finished.out
    rows = {path.stem: len(pandas.read_parquet(path)) for path in out.iterdir()}
    assert rows == {"similarity": 3 * 72 * 71 // 2, "separators": 3 * 72, "outliers": 2 * 7}


@pytest.mark.server
def test_a_study_is_described_by_its_own_average(tmp_path: Path) -> None:
    study, store = write_study(tmp_path, SMALL | {"fractions": [1, 0]}), tmp_path / "store"
    finish_study(study, store)
    given = ["--store", str(store), "--limit", "20"]
    finished = said("describe", "small", *given, "--out", str(tmp_path / "out"))
    assert finished.code == 0, finished.err
    assert "reviews · separators: separator_mass, mean by layer" in " ".join(finished.out.split())
    found = pandas.read_parquet(tmp_path / "out" / "separators.parquet")
    assert set(found["task"]) == {"reviews"}
    assert found.groupby("attention").size().to_dict() == dict.fromkeys(ATTENTIONS, 72)
    mass = found.pivot_table(index=["layer", "head"], columns="attention", values="separator_mass")
    own, constant = mass["input-dependent"], mass["constant"]
    assert own.corr(constant) > 0.9, "the study's average looks at separators as heads do"
    assert not own.equals(constant)
    other = said(
        "describe", "small", *given, "--set", "constants=[zeros]", "--set", "orders=[random]"
    )
    assert other.code == 1
    assert "no finished average of an encoder" in " ".join(words(other))
    both = said("describe", "small", *given, "--encoder", ENCODER)
    assert both.code == 1
    assert "give a STUDY, or --encoder and --text" in " ".join(words(both))


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
