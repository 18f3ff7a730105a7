"""Metrics against scikit-learn, SciPy and seqeval, or by hand; what each example adds."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from papa.errors import DataError
from papa.scores.metrics import influence, positive_class, score_of_examples, score_predictions
from papa.spec import Metric, TaskSpec
from tests.reporting.studies import results, study

TRUE = np.array([1, 1, 1, 0, 0, 0, 1, 0])
NOTHING = np.zeros(4, int)
ONES = np.ones(8, int)
IOB = ("O", "B-person", "I-person", "B-place", "I-place")
BARE = ("NN", "VB", "RB", "DT", ".", "IN")


def score(
    metric: Metric, predicted: Any, true: Any, names: Any = None, lengths: Any = None
) -> float:
    lengths = None if lengths is None else np.array(lengths)
    return score_predictions(metric, np.array(predicted), np.array(true), names, lengths).score


@pytest.mark.parametrize(
    ("metric", "answers", "expected"),
    [
        ("f1", (NOTHING, NOTHING), 0),
        # Of constant predictions, without a warning.
        ("matthews", (ONES, TRUE), 0),
        ("matthews", (ONES, ONES), 0),
        ("spearman", (ONES, TRUE), 0),
        ("spearman", (ONES, ONES), 0),
        ("negative_log_perplexity", (np.log([0.5, 0.125]), [3, 4]), -2 * np.log(2)),
        # In one sentence an entity of two words is missed; in two I- begins an entity of its own.
        ("entity_f1", ([1, 1], [1, 2], IOB, [2]), 0),
        ("entity_f1", ([1, 1], [1, 2], IOB, [1, 1]), 1),
        # No entities, no words.
        ("entity_f1", (NOTHING, NOTHING, IOB, [3, 0, 1]), 0),
    ],
)
def test_scores_by_hand(metric: Metric, answers: Any, expected: float) -> None:
    assert score(metric, *answers) == pytest.approx(expected)


def f1_task(**changes: object) -> TaskSpec:
    (task,) = study(results(tasks=[("pairs", "f1")])).tasks
    return TaskSpec.model_validate({**task.model_dump(exclude_unset=True), **changes})


def test_f1_is_that_of_the_class_named_positive() -> None:
    assert positive_class(f1_task(positive="no"), ("no", "yes")) == 0
    assert positive_class(f1_task(), ("no", "yes")) == 1
    assert positive_class(f1_task(positive="maybe"), ("no", "yes", "maybe")) == 2
    assert positive_class(f1_task(metric="accuracy"), ("a", "b", "c")) == 1


def test_a_misspelt_positive_class_is_refused() -> None:
    with pytest.raises(DataError, match=r"'equivalnt'.*'equivalent'"):
        positive_class(f1_task(positive="equivalnt"), ("different", "equivalent"))


def test_bare_tags_merge_as_seqeval_reads_them(recwarn: pytest.WarningsRecorder) -> None:
    before = list(warnings.filters)
    labels = [3, 0, 0, 1, 2]
    # VB and RB share the type "B" and run together, so swapping them is no error.
    assert score("bare_entity_f1", [3, 0, 0, 2, 1], labels, BARE, [5]) == 1
    # True: T(0), N(1-2), B(3-4). Found: T(0), N(1), T(2), B(3-4): 2 right of 3 and of 4.
    shorter = score("bare_entity_f1", [3, 0, 3, 1, 2], labels, BARE, [5])
    assert shorter == pytest.approx(2 * 2 / (3 + 4))
    assert not recwarn.list
    assert list(warnings.filters) == before


def classes(seed: int, names: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, half of them right, labels, and lengths of sentences, some without a word."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 6, 60)
    true = draw.integers(0, names, lengths.sum())
    predicted = np.where(draw.random(len(true)) < 0.5, true, draw.integers(0, names, len(true)))
    return predicted, true, lengths


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.filterwarnings("ignore:.* seems not to be NE tag")
def test_sums_over_examples_give_the_libraries_scores(seed: int) -> None:
    draw = np.random.default_rng(seed)
    by_library = list[tuple[float, float]]()
    for names in (2, 3, 5):
        predicted, true, lengths = classes(seed, names)
        by_library += [
            (score("accuracy", predicted, true), accuracy_score(true, predicted)),
            (score("token_f1", predicted, true, None, lengths), accuracy_score(true, predicted)),
            (score("token_f1", predicted, true), f1_score(true, predicted, average="micro")),
            (score("matthews", predicted, true), matthews_corrcoef(true, predicted)),
        ]
        for positive in range(names):
            measured = score_predictions("f1", predicted, true, positive=positive).score
            by_library.append((measured, f1_score(true == positive, predicted == positive)))
    entities: list[tuple[Metric, tuple[str, ...]]] = [("entity_f1", IOB), ("bare_entity_f1", BARE)]
    for metric, tags in entities:
        predicted, true, lengths = classes(seed, len(tags))
        found_tags, true_tags = (
            list(map(list, np.split(np.array(tags, object)[side], np.cumsum(lengths)[:-1])))
            for side in (predicted, true)
        )
        expected = entity_f1(true_tags, found_tags)
        assert 0.2 < expected < 0.9, "random answers that score something"
        by_library.append((score(metric, predicted, true, tags, lengths), expected))
    numbers = draw.normal(size=50)
    targets = draw.integers(0, 8, 50)
    ranked = spearmanr(numbers, targets).statistic
    by_library.append((score("spearman", numbers, targets), ranked))
    for measured, expected in by_library:
        assert measured == pytest.approx(expected)


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1", "matthews", "token_f1", "entity_f1", "negative_log_perplexity", "spearman"],
)
def test_an_examples_influence_is_what_the_score_loses_without_it(metric: Metric) -> None:
    names = IOB if metric == "entity_f1" else None
    predicted, true, lengths = classes(0, 2 if metric == "f1" else 5)
    if metric in ("negative_log_perplexity", "spearman"):
        predicted = np.random.default_rng(1).normal(size=len(true))
    if metric not in ("entity_f1", "token_f1", "negative_log_perplexity"):
        lengths = np.ones(len(true), int)
    examples = score_predictions(metric, predicted, true, names, lengths).examples
    whole = score_of_examples(metric, examples)
    without = [np.delete(examples, row, axis=0) for row in range(len(examples))]
    expected = [whole - score_of_examples(metric, rest) for rest in without]
    np.testing.assert_allclose(influence(metric, examples), expected)
    assert np.ptp(expected) > 0.005, "examples differ"
