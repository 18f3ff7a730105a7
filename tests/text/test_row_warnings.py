"""Rows that are probably a mistake are counted in warnings; rows as they should be have none."""

from __future__ import annotations

from functools import partial

import pytest

from papa.text.rows import read_rows
from tests.text.conftest import MLM, PAIR, WORDS, Make, texts

CLASSES = ["no", "yes"] * 4
TRAIN = texts(*CLASSES)
VALIDATION = [{"text": f"unseen {row}", "label": label} for row, label in enumerate(CLASSES)]


def warning(make_task: Make, *files: object, **options: object) -> str:
    (sentence,) = read_rows(make_task(*files, **options)).warnings
    return sentence


def test_rows_as_they_should_be_have_no_warning(make_task: Make) -> None:
    assert not read_rows(make_task(TRAIN, VALIDATION)).warnings


def test_validation_rows_that_are_training_rows_are_counted(make_task: Make) -> None:
    shared = [row | {"label": "no"} for row in TRAIN[:3]]
    assert "3 of 11 " in warning(make_task, TRAIN, VALIDATION + shared)


def test_rows_that_a_sample_leaves_out_are_not_counted(make_task: Make) -> None:
    assert "of 4 " in warning(make_task, TRAIN, TRAIN, validation_rows=4)


PAIRS = [("a", "b c", 0), ("b", "a", 1)]
OF_KINDS: list[tuple[dict[str, object], list[dict[str, object]], dict[str, object]]] = [
    (
        PAIR,
        [
            {"sentence1": first, "sentence2": second, "label": label}
            for first, second, label in PAIRS
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


def test_empty_texts_are_counted(make_task: Make) -> None:
    empty = [{"text": " ", "label": "no"}, {"text": "", "label": "yes"}]
    sentence = warning(make_task, TRAIN + empty, VALIDATION)
    assert "2 training and 0 validation rows" in sentence


@pytest.mark.parametrize("missing", ["nan", "<NA>"])
def test_missing_values_written_as_text_are_counted(make_task: Make, missing: str) -> None:
    rows = [{"text": "no label", "label": missing}]
    sentence = warning(make_task, TRAIN + rows, VALIDATION)
    assert "1 training and 0 validation rows" in sentence
    assert repr(missing) in sentence


@pytest.mark.parametrize("spelling", ["Yes", "yes "])
def test_classes_that_differ_in_case_or_blanks_are_named(make_task: Make, spelling: str) -> None:
    rows = [{"text": "another", "label": spelling}]
    sentence = warning(make_task, TRAIN + rows, VALIDATION)
    assert repr(spelling) in sentence
    assert "'yes'" in sentence


@pytest.fixture
def headless(make_task: Make) -> Make:
    """Makes a task over CSV files that are said to have no header."""
    columns = {"text": "0", "label": "1"}
    return partial(make_task, columns=columns, suffix=".csv", source={"header": False})


def test_a_header_among_the_rows_is_named(headless: Make) -> None:
    rows = "".join(f"text {row},{label}\n" for row, label in enumerate(CLASSES))
    unseen = rows.replace("text", "unseen")
    assert not read_rows(headless(rows, unseen)).warnings
    assert "'queue'" in warning(headless, f"body,queue\n{rows}", unseen)


def test_numbers_to_predict_are_no_header(headless: Make) -> None:
    rows = "".join(f"text {row},{row / 2}\n" for row in range(4))
    validation = rows.replace("text", "unseen")
    assert not read_rows(headless(rows, validation, metric="spearman")).warnings
