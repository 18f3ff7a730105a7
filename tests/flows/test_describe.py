"""``papa describe``: short tables, Parquet files, and one sentence where something is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas
import pytest

from papa.descriptions.seen import ATTENTIONS
from tests.descriptions.cases import values
from tests.flows.conftest import said, words

ENCODER = "embedded/all-MiniLM-L6-v2"
TREE = "".join(
    f"{number}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
    for number, word, head, relation in [(1, "Dogs", 2, "nsubj"), (2, "bark", 0, "root")]
)


def test_tables_are_printed_and_written(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.parquet"
    texts.write_text("A fine film.\nDull, and then it ends.\n")
    asked = ("--only", "separators", "--only", "flow", "--out", str(out))
    finished = said("describe", "--encoder", ENCODER, "--text", str(texts), *asked)
    assert finished.code == 0
    assert "separators: means by layer" in finished.out
    assert "texts.txt" in finished.out, "what was looked at"
    found = pandas.read_parquet(out)
    assert found.groupby("description").size().to_dict() == {"separators": 2 * 216, "flow": 3 * 4}
    assert found.attrs["texts"][0]["texts"] == 2


@pytest.mark.server
def test_a_study_is_described_by_its_own_average(tiny: tuple[str, Path], tmp_path: Path) -> None:
    study, store = tiny[0], shutil.copytree(tiny[1], tmp_path / "store")
    given, trees = ["--store", str(store), "--limit", "20"], tmp_path / "one.conllu"
    trees.write_text(TREE)
    more = ["--trees", str(trees), "--out", str(tmp_path / "out.parquet")]
    finished = said("describe", "small", *given, *more)
    assert finished.code == 0, finished.err
    assert "separators: means by layer" in " ".join(finished.out.split())
    found = pandas.read_parquet(tmp_path / "out.parquet")
    assert set(found["task"]) == {"reviews"}
    own, constant = (values(found, "separator_mass", of) for of in ATTENTIONS[:2])
    assert len(own) == len(constant) == 24
    assert own.corr(constant) > 0.9, "the study's average looks at separators as heads do"
    assert not own.equals(constant)
    sources = [one["source"] for one in found.attrs["texts"]]
    assert sources == ["validation rows", "one.conllu"]
    half = [*given[:3], "3", "--only", "norms", "--fraction", "0.5", *more[2:]]
    finished = said("describe", "small", *half)
    assert "(λ ascending, fraction 0.5)" in finished.out
    (record,) = pandas.read_parquet(tmp_path / "out.parquet").attrs["texts"]
    assert (record["texts"], record["constant_heads"]) == (3, 12)
    for wrong, sentence in [
        (["--fraction", "0.25"], "fraction 0.25: give --fraction"),
        (["--trees", str(study)], "has no trees"),
        (["--encoder", ENCODER], "give a STUDY, or --encoder with --text"),
    ]:
        found_wrong = said("describe", "small", *given, *wrong)
        assert found_wrong.code == 1
        assert sentence in " ".join(words(found_wrong))


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    table, texts = str(tmp_path / "table.csv"), str(tmp_path / "texts.txt")
    Path(table).write_text("body\nfine\n")
    Path(texts).write_text("fine\n")
    for given, sentence in [
        (["--text", table], "no column 'text'"),
        (["--text", f"{texts}.absent"], "texts.txt.absent"),
        (["--text", texts, "--out", f"{texts}/x"], "give a file in a folder that exists"),
        (["--text", texts, "--only", "outlier"], "no description 'outlier'"),
        (["--text", texts, "--only", "syntax"], "'syntax' needs sentences with gold trees"),
        (["--trees", table], "table.csv has no trees (columns: body)"),
        (["--text", texts, "--trees", table], "--text or --trees"),
        (["--text", texts, "--fraction", "0.5"], "a study's order of heads"),
    ]:
        finished = said("describe", "--encoder", ENCODER, *given)
        assert finished.code == 1
        assert words(finished)[-1].startswith("error: ")
        assert sentence in words(finished)[-1]
