"""Metrics as sums over examples, against scikit-learn, SciPy and seqeval on random answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from papa.scores.examples import Answers, example_counts, influence, score_of_examples
from papa.scores.metrics import scored
from papa.spec import Metric

TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
BARE = ("NN", "VB", "RB", "DT", ".", "IN")


def classes(seed: int, names: int, rows: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, predictions that are right for about half of them, and lengths of sentences, some
    without a word.
    """
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 6, rows)
    labels = draw.integers(0, names, lengths.sum())
    predictions = np.where(
        draw.random(len(labels)) < 0.5, labels, draw.integers(0, names, len(labels))
    )
    return predictions, labels, lengths


@pytest.mark.parametrize("seed", range(5))
def test_sums_over_examples_give_the_libraries_scores(seed: int) -> None:
    for names in (2, 3, 5):
        found, true, lengths = classes(seed, names)
        by_library = [
            (scored("accuracy", found, true), accuracy_score(true, found)),
            (scored("token_f1", found, true, None, lengths), accuracy_score(true, found)),
            (scored("token_f1", found, true), f1_score(true, found, average="micro")),
            (scored("matthews", found, true), matthews_corrcoef(true, found)),
        ]
        for positive in range(names):
            own = scored("f1", found, true, positive=positive)
            by_library.append((own, f1_score(true == positive, found == positive)))
        for own, expected in by_library:
            assert own.score == pytest.approx(expected)
    draw = np.random.default_rng(seed)
    numbers, targets = draw.normal(size=50), draw.integers(0, 8, 50)
    expected = spearmanr(numbers, targets).statistic
    assert scored("spearman", numbers, targets).score == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("metric", "names"), [("entity_f1", TAGS), ("bare_entity_f1", BARE)])
@pytest.mark.filterwarnings("ignore:.* seems not to be NE tag")
def test_entities_counted_by_sentence_give_seqevals_score(
    metric: Metric, names: tuple[str, ...], seed: int
) -> None:
    found, true, lengths = classes(seed, len(names))
    tags = np.array(names, dtype=object)
    spans = np.cumsum(lengths)[:-1]
    found_tags, true_tags = (
        [list(part) for part in np.split(tags[side], spans)] for side in (found, true)
    )
    expected = entity_f1(true_tags, found_tags)
    assert 0.2 < expected < 0.9, "random answers that score something"
    assert scored(metric, found, true, names, lengths).score == pytest.approx(expected)


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "f1", "matthews", "token_f1", "entity_f1", "negative_log_perplexity", "spearman"],
)
def test_an_examples_influence_is_what_the_score_loses_without_it(metric: Metric) -> None:
    names = TAGS if metric == "entity_f1" else None
    found, true, lengths = classes(0, 2 if metric == "f1" else 5)
    if metric in ("negative_log_perplexity", "spearman"):
        found = np.random.default_rng(1).normal(size=len(true))
    if metric not in ("entity_f1", "token_f1", "negative_log_perplexity"):
        lengths = np.ones(len(true), int)
    examples = example_counts(metric, Answers(found, true, lengths, names, 1))
    whole = score_of_examples(metric, examples)
    expected = [
        whole - score_of_examples(metric, np.delete(examples, row, axis=0))
        for row in range(len(examples))
    ]
    np.testing.assert_allclose(influence(metric, examples), expected)
    assert np.ptp(expected) > 0.005, "examples differ"
