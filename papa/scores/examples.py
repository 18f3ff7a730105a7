"""Metrics as sums over validation examples: what each adds, and the score of a sum, so that a score
without one example costs a subtraction. Rank correlations alone need the examples themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.spec import Metric
from papa.spec.task import EMBEDDING_METRICS, RANKED, is_own

Values = np.ndarray | np.floating
"""One number for each set of totals; a scalar for one set."""
_filters = Lock()
"""Warning filters are global to the process: one thread at a time may change them."""


@dataclass(frozen=True)
class Answers:
    """Predictions on a validation split and what they should have been, as ``papa.scores.metrics``
    takes them.
    """

    predictions: Shaped[np.ndarray, " n"]
    labels: Shaped[np.ndarray, " n"]
    lengths: Int[np.ndarray, " rows"]
    label_names: Sequence[str] | None
    positive: int


def example_counts(metric: Metric, answers: Answers) -> Float[np.ndarray, "rows k"]:
    """What each example adds to the sums that the metric is a function of.

    accuracy, token_f1: correct, labels. f1: true positives, predicted, true. entity_f1,
    bare_entity_f1: the same of entities. matthews: correct, labels, then predicted and true of
    every class. negative_log_perplexity: the sum of log-probabilities, tokens. agreement: the same
    answers, answers. Rank correlations are no function of sums: prediction, label.
    """
    if metric in RANKED:
        return np.stack([answers.predictions, answers.labels], axis=1).astype(np.float64)
    return _METRICS[metric][0](answers)


def score_of(metric: Metric, totals: Float[np.ndarray, "... k"]) -> Values:
    """The score that belongs to sums of ``example_counts`` over examples; 0 where nothing was
    counted.
    """
    return _METRICS[metric][1](totals)


def score_of_examples(metric: Metric, examples: Float[np.ndarray, "rows k"]) -> float:
    """The score on all the examples together."""
    if metric in RANKED:
        return float(_rank_correlation(examples[:, 0], examples[:, 1]))
    return float(score_of(metric, examples.sum(axis=0)))


def influence(metric: Metric, examples: Float[np.ndarray, "rows k"]) -> Float[np.ndarray, " rows"]:
    """What the score loses where one example is left out, for each of them: the jackknife's values.

    Args:
        examples: as ``example_counts`` returns them; of a measure of embeddings, and of a metric of
            the user's own, these values themselves.
    """
    if metric in EMBEDDING_METRICS or is_own(metric):
        return examples[:, 0]
    if metric in RANKED:
        others = (np.delete(examples, row, axis=0) for row in range(len(examples)))
        without = np.array([score_of_examples(metric, remaining) for remaining in others])
    else:
        without = np.asarray(score_of(metric, examples.sum(axis=0) - examples))
    return score_of_examples(metric, examples) - without


def _hits(answers: Answers) -> np.ndarray:
    return _with_count(answers.predictions == answers.labels, answers.lengths)


def _positives(answers: Answers) -> np.ndarray:
    predicted, true = answers.predictions == answers.positive, answers.labels == answers.positive
    counts = np.stack([predicted & true, predicted, true], axis=1)
    return _by_example(counts.astype(np.float64), answers.lengths)


def _margins(answers: Answers) -> np.ndarray:
    predicted, true = answers.predictions.astype(np.int64), answers.labels.astype(np.int64)
    names = answers.label_names
    classes = np.arange(len(names) if names else max(predicted.max(), true.max()) + 1)
    columns = [
        (predicted == true)[:, None],
        np.ones((len(true), 1)),
        predicted[:, None] == classes,
        true[:, None] == classes,
    ]
    return _by_example(np.concatenate(columns, axis=1, dtype=np.float64), answers.lengths)


def _log_probabilities(answers: Answers) -> np.ndarray:
    return _with_count(answers.predictions, answers.lengths)


def _with_count(values: Shaped[np.ndarray, " n"], lengths: Int[np.ndarray, " rows"]) -> np.ndarray:
    return _by_example(np.stack([values, np.ones_like(values)], axis=1).astype(np.float64), lengths)


def _entities(answers: Answers) -> np.ndarray:
    """Entities as seqeval reads them (its default mode, as conlleval does), sentence by sentence.

    IOB2 tags need no comment. Bare tags (POS) have no B- or I- prefix: seqeval takes a tag's first
    letter for its prefix and the rest for its type, so neighbours whose tags agree but for the
    first letter become one "entity", and tags that begin with O, B, I, E or S are read as those
    marks. The authors' code scores POS so, and the paper's POS numbers are that score. seqeval
    warns of every such tag; here this is intended.
    """
    from seqeval.metrics.sequence_labeling import get_entities

    assert answers.label_names is not None
    names = np.asarray(answers.label_names, dtype=object)
    ends = np.cumsum(answers.lengths)[:-1]
    predicted, true = (
        np.split(names[classes], ends) for classes in (answers.predictions, answers.labels)
    )
    with _filters, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* seems not to be NE tag", category=UserWarning)
        counts = []
        for sentences in zip(predicted, true, strict=True):
            found, actual = (set(get_entities(list(tags))) for tags in sentences)
            counts.append((len(found & actual), len(found), len(actual)))
    return np.array(counts, dtype=np.float64)


def _by_example(
    values: Float[np.ndarray, "n k"], lengths: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "rows k"]:
    sums = np.zeros((len(lengths), values.shape[1]))
    filled = lengths > 0
    if filled.any():
        # An example without labels adds nothing, and reduceat knows no empty span.
        sums[filled] = np.add.reduceat(values, (np.cumsum(lengths) - lengths)[filled], axis=0)
    return sums


def _mean(totals: np.ndarray) -> Values:
    return _ratio(totals[..., 0], totals[..., 1])


def _f1(totals: np.ndarray) -> Values:
    return _ratio(2 * totals[..., 0], totals[..., 1] + totals[..., 2])


def _matthews(totals: np.ndarray) -> Values:
    """Matthews correlation of any classes; 0 where all predictions, or labels, are the same."""
    correct, labels = totals[..., 0], totals[..., 1]
    predicted, true = np.split(totals[..., 2:], 2, axis=-1)
    covariance = correct * labels - (predicted * true).sum(-1)
    spread = (labels**2 - (predicted**2).sum(-1)) * (labels**2 - (true**2).sum(-1))
    return _ratio(covariance, np.sqrt(spread))


def _rank_correlation(predictions: np.ndarray, labels: np.ndarray) -> Values:
    """Spearman's rank correlation along the last axis; 0 where one side is constant."""
    from scipy.stats import rankdata

    first, second = (rankdata(values, axis=-1) for values in (predictions, labels))
    first, second = (ranks - ranks.mean(-1, keepdims=True) for ranks in (first, second))
    return _ratio((first * second).sum(-1), np.sqrt((first**2).sum(-1) * (second**2).sum(-1)))


def _ratio(above: Values, below: Values) -> Values:
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)


_METRICS: dict[Metric, tuple[Callable[[Answers], np.ndarray], Callable[[np.ndarray], Values]]] = {
    "accuracy": (_hits, _mean),
    "token_f1": (_hits, _mean),
    "f1": (_positives, _f1),
    "matthews": (_margins, _matthews),
    "entity_f1": (_entities, _f1),
    "bare_entity_f1": (_entities, _f1),
    "negative_log_perplexity": (_log_probabilities, _mean),
    "agreement": (_hits, _mean),
}
"""What an example adds to sums, and the score of sums; but for rank correlations."""
