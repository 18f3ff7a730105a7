"""The metrics of the paper's tasks (paper, Section 4.1), higher is better for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from papa.errors import DataError
from papa.spec import Metric

_filters = Lock()
"""Warning filters belong to the whole process: one thread at a time may set them aside."""


def score(
    metric: Metric,
    predictions: np.ndarray,
    labels: np.ndarray,
    label_names: Sequence[str] | None = None,
    lengths: np.ndarray | None = None,
) -> float:
    """The score of predictions on a validation split.

    Args:
        metric: one of ``papa.spec.Metric``.
        predictions: classes as int64 [n]; numbers [n] for ``spearman``; for ``negative_log_perplexity`` the
            natural log-probability [n] that each masked token's true word received.
        labels: the true classes or numbers [n]; unused by ``negative_log_perplexity``.
        label_names: the tag of each class, for ``entity_f1`` and ``bare_entity_f1``.
        lengths: labelled words in each sentence, summing to n, for ``entity_f1`` and ``bare_entity_f1``.

    Raises:
        DataError: there is nothing to score, arrays differ in length, or the metric does not fit the labels.
    """
    if len(predictions) == 0:
        raise DataError(f"{metric}: there is nothing to score: the validation split holds no labels")
    if metric != "negative_log_perplexity" and len(predictions) != len(labels):
        raise DataError(f"{metric}: expected {len(labels)} predictions, one a label, found {len(predictions)}")
    if metric in ("entity_f1", "bare_entity_f1"):
        if label_names is None or lengths is None:
            raise DataError(f"{metric}: label_names and lengths are needed to read tags by sentence: give both")
        return _entity_f1(_tags(predictions, label_names, lengths), _tags(labels, label_names, lengths))
    return _SIMPLE[metric](predictions, labels)


def _accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(predictions == labels))


def _matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation; 0 where all predictions, or all labels, are the same class."""
    from sklearn.metrics import matthews_corrcoef

    # scikit-learn warns of a single label where predictions and labels agree on one class; 0 is the
    # documented value.
    if len(np.unique(labels)) == 1 or len(np.unique(predictions)) == 1:
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def _f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1, the positive class of a task with two classes."""
    from sklearn.metrics import f1_score

    if (largest := max(labels.max(), predictions.max())) > 1:
        raise DataError(f"f1 is for classes 0 and 1, found class {int(largest)}: use metric accuracy for more classes")
    return float(f1_score(labels, predictions, pos_label=1, zero_division=0.0))


def _token_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Micro-averaged F1 over labelled tokens. Every token has one label, so it equals accuracy."""
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, average="micro", zero_division=0.0))


def _spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's rank correlation; 0 where all predictions, or all labels, are equal: nothing is ranked."""
    from scipy.stats import spearmanr

    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(spearmanr(predictions, labels).statistic)


def _negative_log_perplexity(log_probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean log-probability of the true word, in nats a masked token: perplexity is exp(-score)."""
    return float(np.mean(log_probabilities, dtype=np.float64))


def _entity_f1(predictions: list[list[str]], labels: list[list[str]]) -> float:
    """Micro F1 over entities as seqeval reads them (its default mode, as conlleval does).

    IOB2 tags need no comment. Bare tags (POS) have no B- or I- prefix: seqeval takes a tag's first letter
    for its prefix and the rest for its type, so neighbours whose tags agree but for the first letter become
    one "entity", and tags that begin with O, B, I, E or S are read as those marks. The authors' code scores
    POS so, and the paper's POS numbers are that score. seqeval warns of every such tag; here it is meant.
    """
    from seqeval.metrics import f1_score

    with _filters, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* seems not to be NE tag", category=UserWarning)
        return float(f1_score(labels, predictions, average="micro", zero_division=0))


def _tags(classes: np.ndarray, names: Sequence[str], lengths: np.ndarray) -> list[list[str]]:
    if (found := int(np.sum(lengths))) != len(classes):
        raise DataError(f"entity_f1: expected lengths that sum to {len(classes)}, one a sentence, found {found}")
    tags = np.asarray(names, dtype=object)[classes]
    return [list(sentence) for sentence in np.split(tags, np.cumsum(lengths)[:-1])]


_SIMPLE: dict[Any, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "matthews": _matthews,
    "f1": _f1,
    "token_f1": _token_f1,
    "spearman": _spearman,
    "negative_log_perplexity": _negative_log_perplexity,
}
