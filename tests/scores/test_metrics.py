"""Metrics against values worked out by hand, and their corners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from papa.errors import DataError
from papa.scores.metrics import positive_class, scored
from papa.spec import Metric, TaskSpec

TRUE = np.array([1, 1, 1, 0, 0, 0, 1, 0])
FOUND = np.array([1, 0, 1, 0, 1, 0, 1, 1])


def score(metric: Metric, *answers: Any) -> float:
    return scored(metric, *answers).score


# By hand: 3 true positives, 1 false negative, 2 false positives, 2 true negatives.


def test_accuracy() -> None:
    assert score("accuracy", FOUND, TRUE) == pytest.approx(5 / 8)


def test_f1_is_that_of_class_1() -> None:
    assert score("f1", FOUND, TRUE) == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    assert score("f1", 1 - FOUND, 1 - TRUE) == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))


def test_f1_without_a_positive_is_zero_and_silent() -> None:
    assert score("f1", np.zeros(4, int), np.zeros(4, int)) == 0


def f1_task(**changes: Any) -> TaskSpec:
    described = {
        "name": "pairs",
        "kind": "text",
        "source": {"kind": "embedded"},
        "columns": {"text": "text", "label": "label"},
        "metric": "f1",
        "slots": 64,
        "probe": {"learning_rate": 1e-3, "batch_size": 8, "epochs": 1},
    }
    return TaskSpec.model_validate({**described, **changes})


def test_f1_is_that_of_the_class_named_positive() -> None:
    positive = positive_class(f1_task(positive="no"), ("no", "yes"))
    assert positive == 0
    assert scored("f1", FOUND, TRUE, positive=positive).score == pytest.approx(
        2 * 2 / (2 * 2 + 2 + 1)
    )
    assert positive_class(f1_task(), ("no", "yes")) == 1
    assert positive_class(f1_task(metric="accuracy"), ("a", "b", "c")) == 1


def test_a_positive_class_that_no_class_is_called_is_one_sentence_with_the_names() -> None:
    with pytest.raises(
        DataError,
        match=r"positive is 'equivalnt', and no class has that name: use one of equivalent,",
    ):
        positive_class(f1_task(positive="equivalnt"), ("different", "equivalent"))
    with pytest.raises(
        ValidationError, match="positive is 'maybe', and no class has that name: use one of no, yes"
    ):
        f1_task(positive="maybe", labels=["no", "yes"])
    with pytest.raises(
        ValidationError,
        match="positive: only metric f1 has a positive class, and the metric is acc",
    ):
        f1_task(positive="yes", labels=["no", "yes"], metric="accuracy")


def test_f1_of_more_than_two_classes_needs_its_class_named() -> None:
    names = ("no", "yes", "maybe")
    with pytest.raises(
        DataError, match=r"there are 3 classes \(no, yes, maybe\): name one of them"
    ):
        positive_class(f1_task(), names)
    assert positive_class(f1_task(positive="maybe"), names) == 2


def test_matthews() -> None:
    expected = (3 * 2 - 2 * 1) / np.sqrt((3 + 2) * (3 + 1) * (2 + 2) * (2 + 1))
    assert score("matthews", FOUND, TRUE) == pytest.approx(expected)
    assert score("matthews", 1 - FOUND, TRUE) == pytest.approx(-expected)


@pytest.mark.parametrize("metric", ["matthews", "spearman"])
def test_correlation_with_constant_predictions_is_zero_and_silent(metric: Metric) -> None:
    assert score(metric, np.ones(8, int), TRUE) == 0
    assert score(metric, np.ones(8, int), np.ones(8, int)) == 0


def test_spearman_sees_ranks_alone() -> None:
    labels = np.array([1.0, 2.0, 3.0, 4.0])
    assert score("spearman", np.exp(labels), labels) == pytest.approx(1)
    # Ranks 1, 3, 2, 4: 1 - 6·(1 + 1) / (4·15).
    assert score("spearman", np.array([1.0, 30.0, 2.0, 40.0]), labels) == pytest.approx(1 - 12 / 60)


def test_token_f1_equals_accuracy() -> None:
    labels, predictions = np.array([0, 1, 2, 2, 1]), np.array([0, 2, 2, 2, 1])
    assert score("token_f1", predictions, labels) == pytest.approx(4 / 5)


def test_negative_log_perplexity_is_the_mean_log_probability() -> None:
    found = np.log(np.array([0.5, 0.125]))
    assert score("negative_log_perplexity", found, np.array([3, 4])) == pytest.approx(
        -2 * np.log(2)
    )


IOB = ("O", "B-person", "I-person", "B-place", "I-place")


def test_entity_f1_counts_whole_entities() -> None:
    # Entities: person 1-2 and place 4-4; found: person 1-1 (cut short) and place 4-4.
    labels = np.array([0, 1, 2, 0, 3])
    predictions = np.array([0, 1, 0, 0, 3])
    assert score("entity_f1", predictions, labels, IOB, np.array([5])) == pytest.approx(0.5)


def test_entities_end_with_their_sentence() -> None:
    labels, predictions = np.array([1, 2]), np.array([1, 1])
    # In one sentence an entity of two words is missed; in two sentences I- begins an entity of its
    # own.
    assert score("entity_f1", predictions, labels, IOB, np.array([2])) == 0
    assert score("entity_f1", predictions, labels, IOB, np.array([1, 1])) == 1


def test_entity_f1_of_sentences_without_entities_or_words() -> None:
    nothing = np.zeros(3, int)
    assert score("entity_f1", nothing, nothing, IOB, np.array([2, 0, 1])) == 0


def test_bare_tags_merge_as_seqeval_reads_them() -> None:
    # VB and RB share the type "B" and run together, so swapping them is no error.
    names = ("NN", "VB", "RB", "DT")
    labels = np.array([3, 0, 0, 1, 2])
    assert score("bare_entity_f1", labels, labels, names, np.array([5])) == 1
    swapped = np.array([3, 0, 0, 2, 1])
    assert score("bare_entity_f1", swapped, labels, names, np.array([5])) == 1
    assert score("token_f1", swapped, labels) == pytest.approx(3 / 5)
    shorter = np.array([3, 0, 3, 1, 2])
    # True: T(0), N(1-2), B(3-4). Found: T(0), N(1), T(2), B(3-4): 2 right of 3 and of 4.
    assert score("bare_entity_f1", shorter, labels, names, np.array([5])) == pytest.approx(
        2 * 2 / (3 + 4)
    )


def test_bare_tags_raise_no_warning_and_leave_the_filters(recwarn: pytest.WarningsRecorder) -> None:
    import warnings

    before = list(warnings.filters)
    score("bare_entity_f1", np.array([0, 1]), np.array([0, 0]), ("NN", "."), np.array([2]))
    assert not recwarn.list
    assert list(warnings.filters) == before


def test_nothing_to_score() -> None:
    with pytest.raises(DataError, match="nothing to score"):
        score("accuracy", np.zeros(0, int), np.zeros(0, int))


def test_predictions_and_labels_must_pair() -> None:
    with pytest.raises(DataError, match="expected 2 predictions, one per label, found 3"):
        score("accuracy", np.zeros(3, int), np.zeros(2, int))


def test_lengths_must_cover_the_tags() -> None:
    with pytest.raises(DataError, match="sum to 3, one per example, found 2"):
        score("entity_f1", np.zeros(3, int), np.zeros(3, int), IOB, np.array([2]))
    with pytest.raises(DataError, match="label_names and lengths"):
        score("entity_f1", np.zeros(3, int), np.zeros(3, int))
