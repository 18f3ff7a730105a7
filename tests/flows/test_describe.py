"""``papa describe``: short tables, Parquet files, and one sentence where something is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas
import pytest

from papa.descriptions.seen import ATTENTIONS
from tests.descriptions.cases import values
from tests.flows.conftest import refusal, said

ENCODER = "embedded/all-MiniLM-L6-v2"
TREE = "".join(
    f"{number}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
    for number, word, head, relation in [(1, "Dogs", 2, "nsubj"), (2, "bark", 0, "root")]
)


@pytest.mark.server
def test_a_study_is_described_by_its_own_average(tiny: tuple[str, Path], tmp_path: Path) -> None:
    study, store = tiny[0], shutil.copytree(tiny[1], tmp_path / "store")
    trees, out = tmp_path / "one.conllu", tmp_path / "out.parquet"
    trees.write_text(TREE)
    given, written = ["describe", "small", "--store", str(store)], ["--out", str(out)]
    finished = said(*given, "--limit", "20", "--trees", str(trees), *written)
    assert finished.code == 0, finished.err
    found = pandas.read_parquet(out)
    own, constant = (values(found, "separator_mass", of) for of in ATTENTIONS[:2])
    assert len(own) == len(constant) == 24
    assert own.corr(constant) > 0.9, "the study's average looks at separators as heads do"
    assert not own.equals(constant)
    sources = [one["source"] for one in found.attrs["texts"]]
    assert sources == ["validation rows", "one.conllu"]
    half = ["--limit", "3", "--only", "norms", "--fraction", "0.5", *written]
    assert "(λ ascending, fraction 0.5)" in said(*given, *half).out
    (record,) = pandas.read_parquet(out).attrs["texts"]
    assert (record["texts"], record["constant_heads"]) == (3, 12)
    for wrong, sentence in [
        (["--fraction", "0.25"], "fraction 0.25: give --fraction"),
        (["--trees", study], "has no trees"),
        (["--encoder", ENCODER], "give a STUDY, or --encoder with --text"),
    ]:
        assert sentence in refusal(said(*given, *wrong))


def test_an_encoder_is_described_on_texts_or_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    table, texts = str(tmp_path / "table.csv"), str(tmp_path / "texts.txt")
    Path(table).write_text("body\nfine\n")
    Path(texts).write_text("A fine film.\nDull, and then it ends.\n")
    asked = ("--only", "separators", "--only", "flow", "--out", str(tmp_path / "out.parquet"))
    finished = said("describe", "--encoder", ENCODER, "--text", texts, *asked)
    assert "separators: means by layer" in finished.out
    assert "texts.txt" in finished.out, "what was looked at"
    found = pandas.read_parquet(tmp_path / "out.parquet")
    assert found.groupby("description").size().to_dict() == {"separators": 2 * 216, "flow": 3 * 4}
    assert found.attrs["texts"][0]["texts"] == 2
    for given, sentence in [
        (["--text", f"{texts}.absent"], "texts.txt.absent"),
        (["--text", texts, "--out", f"{texts}/x"], "give a file in a folder that exists"),
        (["--text", texts, "--only", "syntax"], "'syntax' needs sentences with gold trees"),
        (["--text", texts, "--trees", table], "--text or --trees"),
        (["--text", texts, "--fraction", "0.5"], "a study's order of heads"),
    ]:
        assert sentence in refusal(said("describe", "--encoder", ENCODER, *given))
