"""Rows of every kind of task: labels however they are spelled, samples, and warnings."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from seqeval.metrics.sequence_labeling import get_entities
from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaModel

import papa
from papa.errors import DataError
from papa.text.rows import prepare_rows, read_rows
from papa.text.sources import Split
from papa.text.table import SourceTable
from tests.make import SIZES
from tests.models.inputs import with_tokenizer
from tests.text.conftest import ENTITIES, MLM, PAIR, WORDS, Make, texts

IOB1 = ["I-ORG", "O", "I-PER", "I-PER", "B-PER", "I-LOC", "O", "I-MISC"]
IOB2 = ["B-ORG", "O", "B-PER", "I-PER", "B-PER", "B-LOC", "O", "B-MISC"]
NLI = ["contradiction", "entailment", "neutral"]
NAMED = SourceTable(
    pa.table({"text": ["a"] * 5, "label": [0, 1, -1, 2, -1]}), "SNLI", {"label": tuple(NLI)}
)
CLASSES = ["no", "yes"] * 4
TRAIN = texts(*CLASSES)


def unseen(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows with other texts, as those of another split have."""
    return [{**row, "text": f"unseen {row['text']}"} for row in rows]


def tagged(*tags: list[object]) -> list[dict[str, object]]:
    return [{"tokens": ["word"] * len(row), "tags": row} for row in tags]


@pytest.mark.parametrize(
    ("labels", "declared", "numbers", "names"),
    [
        ([1, 0, 1], None, [1, 0, 1], ("0", "1")),
        ([1, 0, 1], ["no", "yes"], [1, 0, 1], ("no", "yes")),
        ([5, 3, 10], None, [1, 0, 2], ("3", "5", "10")),
        (["yes", "no", "yes"], None, [1, 0, 1], ("no", "yes")),
        (["yes", "no", "yes"], ["yes", "no"], [0, 1, 0], ("yes", "no")),
        (["1", "0", "10"], None, [1, 0, 2], ("0", "1", "10")),
        ([1.0, 0.0, 1.0], None, [1, 0, 1], ("0", "1")),
        ([True, False, True], ["no", "yes"], [1, 0, 1], ("no", "yes")),
        ([-1, 0, 1], None, [0, 1, 2], ("-1", "0", "1")),
        (["007", "7", "07"], None, [0, 2, 1], ("007", "07", "7")),
        ([f"{2**63}", f"{2**63 + 1}"], None, [0, 1], (f"{2**63}", f"{2**63 + 1}")),
    ],
)
def test_classes_are_numbered_however_they_are_spelled(
    make_task: Make,
    labels: list[object],
    declared: list[str] | None,
    numbers: list[int],
    names: tuple[str, ...],
) -> None:
    rows = read_rows(make_task(texts(*labels), labels=declared))
    assert rows.train["label"].to_pylist() == rows.validation["label"].to_pylist() == numbers
    assert rows.label_names == names


def parquet(path: Path, names: list[str]) -> Path:
    """Rows with integer classes and their names, as the datasets library writes them."""
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    Dataset.from_dict({"text": ["a"] * 3, "label": [0, 1, 1]}, features).to_parquet(path)
    return path


@pytest.mark.parametrize("declared", [None, ["positive", "negative"]])
def test_classes_go_by_names(make_task: Make, tmp_path: Path, declared: list[str] | None) -> None:
    train = parquet(tmp_path / "a.parquet", ["negative", "positive"])
    reordered = parquet(tmp_path / "b.parquet", ["positive", "negative"])
    rows = read_rows(make_task(train, reordered, labels=declared))
    names = rows.label_names
    assert names == tuple(declared or ("negative", "positive"))
    for split, expected in ((rows.train, (0, 1, 1)), (rows.validation, (1, 0, 0))):
        labels_read = [names[label] for label in split["label"].to_pylist()]
        assert labels_read == [("negative", "positive")[label] for label in expected]
    strange = parquet(tmp_path / "c.parquet", ["bad", "good"])
    with pytest.raises(DataError, match=r"c\.parquet .*bad, good"):
        read_rows(make_task(train, strange, labels=declared))


def test_numbers_to_predict(make_task: Make) -> None:
    rows = [texts(0, 2.5, -1), unseen(texts(" 1.5", "-2e3", "16777217"))]
    prepared = read_rows(make_task(*rows, metric="spearman"))
    assert prepared.train["label"].to_pylist() == [0.0, 2.5, -1.0]
    assert prepared.validation["label"].to_pylist() == [1.5, -2000.0, 16777216.0]
    assert str(prepared.train["label"].type) == "float"
    assert prepared.label_names is None
    assert not prepared.warnings


@pytest.mark.parametrize("split", ["train", "validation"])
def test_samples_are_drawn_by_their_seed(make_task: Make, split: Split) -> None:
    rows = texts(*[0] * 50, *[1] * 50)

    def drawn(size: int, seed: int) -> list[dict[str, object]]:
        task = make_task(rows, train_rows=size, validation_rows=size, sample_seed=seed)
        return getattr(read_rows(task), split).to_pylist()

    large = drawn(20, 0)
    assert drawn(100, 0) == drawn(101, 0) == rows, "all rows keep their order"
    assert drawn(10, 0) == large[:10], "a smaller sample is the start of a larger one"
    assert drawn(10, 1) != large[:10]
    assert len({row["text"] for row in large}) == 20
    assert all(row in rows for row in large), "each text keeps its label"
    assert 4 < sum(row["label"] for row in large) < 16, "over all classes of a sorted file"


def test_words_need_as_many_tags(make_task: Make) -> None:
    rows = read_rows(make_task(tagged(["B-X", "I-X", "O"], [], ["O"]), settings=ENTITIES))
    assert rows.label_names == ("B-X", "I-X", "O")
    assert rows.train["label"].to_pylist() == [[0, 1, 2], [], [2]]
    assert rows.train["words"].to_pylist() == [["word"] * 3, [], ["word"]]
    of_speech = read_rows(make_task(tagged(["NN", "I-X"]), settings=WORDS))
    assert of_speech.label_names == ("I-X", "NN"), "tags that are no entities stay as they are"


@pytest.mark.parametrize("numbered", [False, True])
def test_iob1_becomes_iob2_with_the_same_entities(make_task: Make, numbered: bool) -> None:
    names = ["O", *(f"{mark}-{kind}" for kind in ("ORG", "PER", "LOC", "MISC") for mark in "BI")]

    def rows(*tags: list[str]) -> list[dict[str, object]]:
        return tagged(*([names.index(tag) for tag in row] if numbered else row for row in tags))

    task = make_task(rows(IOB1, ["I-MISC"]), rows(IOB2), settings=ENTITIES, labels=names)
    prepared = read_rows(task)
    first, second = ([names[label] for label in row] for row in prepared.train["label"].to_pylist())
    assert first == IOB2
    assert second == ["B-MISC"], "an entity ends with its row"
    assert get_entities(IOB2) == get_entities(IOB1)
    assert [names[label] for label in prepared.validation["label"].to_pylist()[0]] == IOB2


def test_blank_lines_of_running_text_are_dropped(make_task: Make) -> None:
    rows = [{"text": ""}, {"text": " = Heading = \n"}, {"text": "  "}, {"text": "Text ."}]
    prepared = read_rows(make_task(rows, [{"text": ""}, {"text": "Other text ."}], settings=MLM))
    assert prepared.train["text"].to_pylist() == ["= Heading =", "Text ."]
    assert not prepared.warnings


@pytest.mark.parametrize(
    ("train", "validation", "expected"),
    [
        ([1, 1], [0, 1], "every training label is '1'"),
        ([0, 1], [1, 1], "every validation label is '1'"),
        ([0, 1], [0, 1], ""),
    ],
)
def test_labels_that_make_scores_mean_little_are_said(
    make_task: Make, train: list[object], validation: list[object], expected: str
) -> None:
    task = make_task(texts(*train), unseen(texts(*validation)), labels=["-", "1"])
    warnings = " ".join(read_rows(task).warnings)
    assert expected in warnings
    assert bool(warnings) == bool(expected)


@pytest.mark.parametrize(("classes", "none"), [(NLI, "-"), ([0, 1, 2], -1)])
def test_rows_without_agreement(make_task: Make, classes: list[object], none: object) -> None:
    files = texts(*classes * 6, none, none, none), unseen(texts(*classes * 4, none))
    (warning,) = read_rows(make_task(*files)).warnings
    assert "3 training and 1 validation" in warning
    with pytest.raises(DataError, match="row 3 has -1"):
        prepare_rows(make_task(*files), NAMED, NAMED)
    task = make_task(*files, labels=NLI)
    assert prepare_rows(task, NAMED, NAMED).train["label"].to_pylist() == [0, 1, 2]
    prepared = read_rows(task)
    assert (len(prepared.train), len(prepared.validation)) == (18, 12)
    assert prepared.label_names == tuple(NLI)
    (warning,) = prepared.warnings
    assert "3 training and 1 validation" in warning


def test_validation_rows_that_are_training_rows_are_counted(make_task: Make) -> None:
    shared = [row | {"label": "no"} for row in TRAIN[:3]]
    (warning,) = read_rows(make_task(TRAIN, unseen(TRAIN) + shared)).warnings
    assert "3 of 11 " in warning


def test_rows_that_a_sample_leaves_out_are_not_counted(make_task: Make) -> None:
    (warning,) = read_rows(make_task(TRAIN, TRAIN, validation_rows=4)).warnings
    assert "of 4 " in warning


OF_KINDS: list[tuple[dict[str, object], list[dict[str, object]], dict[str, object]]] = [
    (
        PAIR,
        [
            {"sentence1": "a", "sentence2": "b c", "label": 0},
            {"sentence1": "b", "sentence2": "a", "label": 1},
        ],
        {"sentence1": "a b", "sentence2": "c", "label": 0},
    ),
    (MLM, [{"text": "a"}, {"text": "b"}], {"text": "c"}),
    (
        WORDS,
        [{"tokens": ["a", "b"], "tags": ["X", "Y"]}, {"tokens": ["b"], "tags": ["Y"]}],
        {"tokens": ["a b"], "tags": ["X"]},
    ),
]


@pytest.mark.parametrize(("kind", "rows", "different_row"), OF_KINDS)
def test_inputs_of_every_kind_are_compared(
    make_task: Make,
    kind: dict[str, object],
    rows: list[dict[str, object]],
    different_row: dict[str, object],
) -> None:
    """The other row has the same characters, divided differently."""
    warnings = read_rows(make_task(rows, [rows[0], different_row], settings=kind)).warnings
    assert any("1 of 2 " in sentence for sentence in warnings)


def test_text_of_views_is_text(make_task: Make) -> None:
    """As data frames of polars give it."""
    view = pa.string_view()
    columns = {"text": pa.array(["a", "b"], view), "tokens": pa.array([["a"]] * 2, pa.list_(view))}
    source = SourceTable(pa.table({**columns, "label": ["x", "y"], "tags": [["X"]] * 2}), "polars")
    prepared = prepare_rows(make_task("-"), source, source)
    assert prepared.train.to_pydict() == {"text": ["a", "b"], "label": [0, 1]}
    words = prepare_rows(make_task("-", settings=WORDS), source, source).train["words"]
    assert words.to_pylist() == [["a"]] * 2


@pytest.mark.parametrize("kind", ["probe", "native"])
def test_encoders_of_one_segment_read_pairs(tmp_path: Path, kind: str) -> None:
    """RoBERTa with a BERT tokenizer, whose second texts are segment 1."""
    settings = SIZES | {"vocab_size": 30522, "type_vocab_size": 1, "pad_token_id": 0}
    config = RobertaConfig.from_dict(settings)
    torch.manual_seed(0)
    model = RobertaForSequenceClassification if kind == "native" else RobertaModel
    folder = with_tokenizer(model(config).eval(), tmp_path / "one")
    encoder = papa.load_encoder(folder, slots=16, device="cpu")
    rows = {"a": ["a cat", "a dog"] * 8, "b": ["cats", "no dogs here"] * 8, "label": [0, 1] * 8}
    task = papa.Task(text="a", text_pair="b", head=kind, epochs=1)  # type: ignore[arg-type]
    data = {"train": rows, "validation": rows}
    measurement = papa.measure(
        encoder, data, task=task, orders=["first_to_last"], keep=[1, 0], progress=False
    )
    assert measurement.results["score"].notna().all()
