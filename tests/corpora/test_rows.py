"""Rows of every kind of task: labels however they are spelled, samples, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from papa.corpora.rows import read_rows
from papa.corpora.sources import Split
from papa.errors import DataError
from papa.spec import FilesSource, TaskSpec
from tests.corpora.conftest import Make

WORDS = {"kind": "words", "columns": {"words": "tokens", "label": "tags"}, "metric": "entity_f1"}


def texts(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"text {row}", "label": label} for row, label in enumerate(labels)]


def tagged(*tags: list[Any]) -> list[dict[str, Any]]:
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
        (["1", "0", "1"], ["no", "yes"], [1, 0, 1], ("no", "yes")),
        ([1.0, 0.0, 1.0], None, [1, 0, 1], ("0", "1")),
        ([True, False, True], ["no", "yes"], [1, 0, 1], ("no", "yes")),
        ([-1, 0, 1], None, [0, 1, 2], ("-1", "0", "1")),
        (["007", "7", "07"], None, [0, 2, 1], ("007", "07", "7")),
        ([" 7", "7", "8"], None, [0, 1, 2], (" 7", "7", "8")),
        ([2**53, 2**53 + 1, 2], None, [1, 2, 0], ("2", str(2**53), str(2**53 + 1))),
        ([f"{2**63}", f"{2**63 + 1}"], None, [0, 1], (f"{2**63}", f"{2**63 + 1}")),
    ],
)
def test_classes_are_numbered_however_they_are_spelled(
    make_task: Make,
    labels: list[Any],
    declared: list[str] | None,
    numbers: list[int],
    names: tuple[str, ...],
) -> None:
    rows = read_rows(make_task(texts(*labels), labels=declared))
    assert rows.train["label"].to_pylist() == rows.validation["label"].to_pylist() == numbers
    assert rows.label_names == names


@pytest.mark.parametrize(
    ("train", "validation", "declared", "message"),
    [
        ([0, 1], [0, None], None, "row 2 has no 'label' .columns: text, label"),
        ([0, 1], [0, 2], None, "row 2 has a label that no training row has: 2: correct the rows"),
        (
            ["a", "b"],
            ["c", "d", "a"],
            None,
            "row 1 has a label that no training row has: c, d: correct the rows",
        ),
        (
            ["a", "b"],
            ["a"],
            ["a", "x"],
            "row 2 has a label that the task does not know: b .known: a, x",
        ),
        (
            [0, 2],
            [0],
            ["no", "yes"],
            "row 2 has 2 as 'label' where the task knows the labels 0 to 1",
        ),
        ([0, 1], [-1, -1], None, "every 'label' is -1: -1 marks the hidden labels of GLUE"),
        ([0, 1], [-1, -1], ["no", "yes"], "every 'label' is -1: -1 marks the hidden labels"),
        (
            [0, 1],
            [0, -1],
            None,
            "row 2 .* row has: -1: it marks rows without agreement",
        ),
        ([0, 1], ["a", "b"], None, "column 'label' holds strings where .* holds integers"),
        ([0.5, 1], [1], None, r"row 1 has 0\.5 as 'label', which is no class"),
        (
            [1, 2.0**53],
            [1],
            None,
            r"row 2 has 9007199254740992\.0 as 'label', and numbers this large are not exact",
        ),
        (["a", ""], ["a"], None, r"row 2 has no 'label' \(it is empty\)"),
        ([[0], [1]], [[0]], None, "holds list<.*not labels"),
    ],
)
def test_labels_that_do_not_fit_are_named(
    make_task: Make,
    train: list[Any],
    validation: list[Any],
    declared: list[str] | None,
    message: str,
) -> None:
    task = make_task(texts(*train), texts(*validation), labels=declared)
    with pytest.raises(DataError, match=message) as caught:
        read_rows(task)
    assert "train.jsonl" in str(caught.value) or "validation.jsonl" in str(caught.value)


NEGATIVE_FIRST, POSITIVE_FIRST = ("negative", "positive"), ("positive", "negative")


def parquet(folder: Path, split: str, names: Sequence[str], labels: Sequence[Any]) -> Path:
    """Rows with integer classes, or lists of them, and their names, as the datasets library writes
    them.
    """
    from datasets import ClassLabel, Dataset, Features, List, Value

    words = isinstance(labels[0], list)
    classes = ClassLabel(names=list(names))
    text, label = Value("string"), classes
    features = Features(
        {"text": List(text), "label": List(label)} if words else {"text": text, "label": label}
    )
    rows = {"text": [["a"] * len(label) if words else "a" for label in labels], "label": labels}
    path = folder / f"{split}.parquet"
    Dataset.from_dict(rows, features=features).to_parquet(path)
    return path


@pytest.fixture
def parquet_task(tmp_path: Path, make_task: Make) -> Callable[..., TaskSpec]:
    def make(train: tuple[Any, Any], validation: tuple[Any, Any], **settings: Any) -> TaskSpec:
        task = make_task(texts(0), **settings)
        paths = {
            name: parquet(tmp_path, name, *of)
            for name, of in (("train", train), ("validation", validation))
        }
        return task.model_copy(update={"source": FilesSource(kind="files", **paths)})

    return make


@pytest.mark.parametrize("declared", [None, ["negative", "positive"]])
def test_named_classes_in_another_order_are_the_same_classes(
    parquet_task: Callable[..., TaskSpec], declared: list[str] | None
) -> None:
    task = parquet_task((NEGATIVE_FIRST, [0, 1, 1]), (POSITIVE_FIRST, [0, 1, 1]), labels=declared)
    rows = read_rows(task)
    assert rows.label_names == tuple(declared or NEGATIVE_FIRST)
    assert (rows.train["label"].to_pylist(), rows.validation["label"].to_pylist()) == (
        [0, 1, 1],
        [1, 0, 0],
    )
    same = read_rows(
        parquet_task((NEGATIVE_FIRST, [0, 1, 1]), (NEGATIVE_FIRST, [0, 1, 1]), labels=declared)
    )
    assert same.validation["label"].to_pylist() == [0, 1, 1]


def test_named_classes_of_words_in_another_order(parquet_task: Callable[..., TaskSpec]) -> None:
    settings = {
        "kind": "words",
        "columns": {"words": "text", "label": "label"},
        "metric": "entity_f1",
    }
    task = parquet_task(
        (("O", "B-X", "I-X"), [[0, 1, 2], [0]]), (("I-X", "O", "B-X"), [[1, 2, 0], [1]]), **settings
    )
    rows = read_rows(task)
    assert (
        rows.validation["label"].to_pylist() == rows.train["label"].to_pylist() == [[0, 1, 2], [0]]
    )


def test_classes_of_other_names_are_refused(parquet_task: Callable[..., TaskSpec]) -> None:
    task = parquet_task((NEGATIVE_FIRST, [0, 1]), (("bad", "good"), [0, 1]))
    with pytest.raises(
        DataError,
        match=r"validation\.parquet names the classes of 'label' bad, good where .*train\.parqu",
    ):
        read_rows(task)


def test_a_declared_class_may_be_absent_from_training(make_task: Make) -> None:
    rows = read_rows(make_task(texts("a", "b"), texts("c"), labels=["a", "b", "c"]))
    assert rows.validation["label"].to_pylist() == [2]


def test_numbers_to_predict(make_task: Make) -> None:
    rows = read_rows(make_task(texts(0, 2.5), texts(5), metric="spearman"))
    assert rows.train["label"].to_pylist() == [0.0, 2.5]
    assert str(rows.train["label"].type) == "float"
    assert rows.label_names is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["1.5", "high"], "row 2 has 'high' as 'label' where a regression task"),
        (["1.5", "nan"], "row 2 has nan as 'label', which is no finite number"),
    ],
)
def test_classes_are_no_numbers(make_task: Make, labels: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_rows(make_task(texts(*labels), metric="spearman"))


def test_columns_that_are_not_there_are_named(make_task: Make) -> None:
    task = make_task(texts(0, 1), columns={"text": "sentence", "label": "label"})
    with pytest.raises(
        DataError, match=r"train\.jsonl has no column 'sentence' \(found: text, label\)"
    ):
        read_rows(task)
    with pytest.raises(DataError, match="column 'label' holds int64, not text"):
        read_rows(make_task(texts(0, 1), columns={"text": "label", "label": "label"}))


def test_missing_and_empty_splits_are_named(make_task: Make, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file at .*absent\.jsonl"):
        read_rows(make_task(texts(0), tmp_path / "absent.jsonl"))
    with pytest.raises(DataError, match=r"validation\.jsonl has no row: give a validation split"):
        read_rows(make_task(texts(0), "\n\n"))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_samples_of_both_splits_are_drawn_by_their_seed(make_task: Make, split: Split) -> None:
    rows = texts(*[0, 1] * 50)
    samples = [
        read_rows(make_task(rows, train_rows=10, validation_rows=10, sample_seed=seed))
        for seed in (0, 0, 1)
    ]
    first, again, other = [sample.split(split)["text"].to_pylist() for sample in samples]
    assert first == again
    assert len(set(first)) == 10
    assert set(first) != {row["text"] for row in rows[:10]}
    assert set(first) != set(other)
    assert samples[0].notes["rows_found"] == {"train": 100, "validation": 100}


def test_a_smaller_sample_is_the_start_of_a_larger_one(make_task: Make) -> None:
    rows = texts(*[0, 1] * 25)
    smaller, larger = (read_rows(make_task(rows, train_rows=size)).train for size in (10, 20))
    assert smaller["text"].to_pylist() == larger["text"].to_pylist()[:10]


def test_a_sorted_split_is_sampled_over_all_its_classes(make_task: Make) -> None:
    rows = texts(*[0] * 50, *[1] * 50)
    sample = read_rows(make_task(rows, validation_rows=40)).validation
    assert 10 < sum(sample["label"].to_pylist()) < 30


@pytest.mark.parametrize("rows", [None, 4, 9])
def test_all_rows_keep_their_order(make_task: Make, rows: int | None) -> None:
    found = read_rows(make_task(texts(0, 1, 0, 1), train_rows=rows, validation_rows=rows))
    assert (
        found.train["text"].to_pylist()
        == found.validation["text"].to_pylist()
        == [f"text {row}" for row in range(4)]
    )


def test_a_sample_keeps_each_text_with_its_label(make_task: Make) -> None:
    rows = [{"text": f"{number}", "label": number} for number in range(40)]
    sample = read_rows(make_task(rows, train_rows=10)).train
    assert [int(text) for text in sample["text"].to_pylist()] == sample["label"].to_pylist()


def test_words_and_tags_go_together(make_task: Make) -> None:
    rows = read_rows(make_task(tagged(["B-X", "I-X", "O"], [], ["O"]), **WORDS))
    assert rows.label_names == ("B-X", "I-X", "O")
    assert rows.train["label"].to_pylist() == [[0, 1, 2], [], [2]]
    assert rows.train["words"].to_pylist() == [["word"] * 3, [], ["word"]]
    assert "tags_converted_from_iob1" not in rows.notes


def test_integer_tags_take_declared_names(make_task: Make) -> None:
    rows = read_rows(make_task(tagged([1, 2, 0], [0]), **WORDS, labels=["O", "B-X", "I-X"]))
    assert rows.train["label"].to_pylist() == [[1, 2, 0], [0]]
    with pytest.raises(
        DataError, match="row 2 has 3 as 'tags' where the task knows the labels 0 to 2"
    ):
        read_rows(make_task(tagged([1], [0, 3]), **WORDS, labels=["O", "B-X", "I-X"]))
    with pytest.raises(DataError, match="entity tags are integers without names"):
        read_rows(make_task(tagged([1, 2, 0], [0]), **WORDS))


@pytest.mark.parametrize("spelling", ["names", "numbers"])
def test_iob1_is_converted_and_reported(make_task: Make, spelling: str) -> None:
    names = ["O", "B-X", "I-X"]
    tags = ["I-X", "B-X", "O", "I-X"]
    content = tags if spelling == "names" else [names.index(tag) for tag in tags]
    rows = read_rows(
        make_task(
            tagged(content), tagged(["B-X"] if spelling == "names" else [1]), **WORDS, labels=names
        )
    )
    assert [names[label] for label in rows.train["label"].to_pylist()[0]] == [
        "B-X",
        "B-X",
        "O",
        "B-X",
    ]
    assert rows.notes["tags_converted_from_iob1"] == {"train": 2}


def test_iob1_in_numbers_needs_names_for_iob2(make_task: Make) -> None:
    with pytest.raises(
        DataError, match="need names that the labels lack: B-X: add them to the task's labels"
    ):
        read_rows(make_task(tagged([0, 1]), **WORDS, labels=["O", "I-X"]))


def test_part_of_speech_tags_are_no_entities(make_task: Make) -> None:
    words = {**WORDS, "metric": "token_f1"}
    assert read_rows(make_task(tagged(["NN", "I-X"]), **words)).train["label"].to_pylist() == [
        [1, 0]
    ]
    with pytest.raises(DataError, match="row 1 has the tag 'NN', which is not IOB2"):
        read_rows(make_task(tagged(["NN", "I-X"]), **WORDS))


def test_uneven_words_and_tags_are_named(make_task: Make) -> None:
    rows = [{"tokens": ["a"], "tags": ["O"]}, {"tokens": ["a", "b"], "tags": ["O"]}]
    with pytest.raises(DataError, match="row 2 has 2 words in 'tokens' and 1 labels in 'tags'"):
        read_rows(make_task(rows, **WORDS))
    with pytest.raises(DataError, match="row 2 has an empty item in 'tags'"):
        read_rows(make_task(tagged(["O"], ["O", None]), **WORDS))
    with pytest.raises(DataError, match="holds string, not one list a row"):
        read_rows(make_task([{"tokens": "a b", "tags": ["O", "O"]}], **WORDS))


def test_colas_own_files_are_read_by_column_number(make_task: Make) -> None:
    task = make_task(
        'gj04\t1\t\tOne "quoted.\ngj04\t0\t*\tTwo it.\n',
        suffix=".tsv",
        columns={"text": "3", "label": "1"},
        source={"header": False},
        labels=["unacceptable", "acceptable"],
    )
    rows = read_rows(task)
    assert rows.train.to_pydict() == {"text": ['One "quoted.', "Two it."], "label": [1, 0]}


def test_blank_lines_of_running_text_are_dropped(make_task: Make) -> None:
    rows = [{"text": ""}, {"text": " = Heading = \n"}, {"text": "  "}, {"text": "Text ."}]
    mlm = {"kind": "mlm", "columns": {"text": "text"}, "metric": "negative_log_perplexity"}
    found = read_rows(make_task(rows, **mlm))
    assert found.train["text"].to_pylist() == ["= Heading =", "Text ."]
    assert found.notes["blank_rows_dropped"] == {"train": 2, "validation": 2}
    with pytest.raises(DataError, match="every 'text' is blank"):
        read_rows(make_task([{"text": " "}], **mlm))


def test_a_split_of_one_class_is_said(make_task: Make) -> None:
    task = make_task(texts("a", "b", "a"), texts("b", "b"), labels=["a", "b"])
    said = read_rows(task).notes["warnings"]
    assert said[0].startswith("every validation label is 'b' (2 of them), so a score shows nothing")
    said = read_rows(make_task(texts("a", "a"), texts("a", "b"), labels=["a", "b"])).notes[
        "warnings"
    ]
    assert said[0].startswith(
        "every training label is 'a' (2 of them), so there is nothing to learn"
    )


@pytest.mark.parametrize(
    ("positive", "shifted"), [(40, False), (64, False), (66, True), (10, True)]
)
def test_classes_spread_differently_are_said(make_task: Make, positive: int, shifted: bool) -> None:
    """40 of 100 training labels are positive; total variation distances above 0.25 are said."""
    task = make_task(
        texts(*[1] * 40, *[0] * 60),
        texts(*[1] * positive, *[0] * (100 - positive)),
        labels=["-", "+"],
    )
    said = read_rows(task).notes["warnings"]
    assert len(said) == shifted
    if shifted:
        assert f"(total variation distance {abs(positive - 40) / 100:.2f})" in said[0]
        assert (
            f"'-' is 60% of the training labels and {100 - positive}% of the validation labels"
            in said[0]
        )


def test_classes_of_words_count_by_word(make_task: Make) -> None:
    task = make_task(tagged(["B-X", "O", "O"], []), tagged(["O", "O"], ["O"]), **WORDS)
    said = read_rows(task).notes["warnings"]
    assert "every validation label is 'O' (3 of them)" in said[0]
    assert "'B-X' is 33% of the training labels and 0% of the validation labels" in said[1]


def test_numbers_and_masked_text_have_no_classes(make_task: Make) -> None:
    assert "warnings" not in read_rows(make_task(texts(1.5, 2), metric="spearman")).notes
