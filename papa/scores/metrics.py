"""The metrics of the paper's tasks (paper, Section 4.1), higher is better for all of them: as sums
over validation examples, so that a score without one example costs a subtraction. Rank
correlations alone need the examples themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.errors import DataError, meant
from papa.scores.entities import entities_of
from papa.spec import Metric, TaskSpec
from papa.spec.task import EMBEDDING_METRICS, RANKED, is_custom_metric

Values = np.ndarray | np.floating
"""One number for each set of totals; a scalar for one set."""
_ENTITIES = ("entity_f1", "bare_entity_f1")


@dataclass(frozen=True)
class Scored:
    """A score and what each validation example adds to it."""

    score: float
    examples: Float[np.ndarray, "rows k"]


def score_predictions(
    metric: Metric,
    predictions: np.ndarray,
    labels: np.ndarray,
    label_names: Sequence[str] | None = None,
    lengths: np.ndarray | None = None,
    positive: int = 1,
) -> Scored:
    """Score predictions on a validation split; return also what each example adds to the sums of
    which the metric is a function.

    accuracy, token_f1, agreement: correct, labels. f1: true positives, predicted, true. entity_f1,
    bare_entity_f1: the same of entities. matthews: correct, labels, then predicted and true of
    every class. negative_log_perplexity: the sum of log-probabilities, tokens. Rank correlations
    are no function of sums: prediction, label.

    Predictions and labels are classes [n], or numbers for rank correlations; for
    ``negative_log_perplexity`` predictions are the natural log-probability of each masked token's
    true word, and labels are unused. ``lengths`` are the numbers of labels of the examples (None:
    one each).

    Embedding metrics and custom metrics are not for this function, which would score them as
    accuracy.
    """
    if len(predictions) == 0:
        raise DataError(
            f"{metric}: there is nothing to score: the validation split holds no labels"
        )
    lengths = np.ones(len(predictions), np.int64) if lengths is None else lengths
    columns = [predictions == labels, np.ones(len(predictions))]
    if metric in RANKED:
        columns = [predictions, labels]
    elif metric == "negative_log_perplexity":
        columns[0] = predictions
    elif metric == "f1":
        predicted = predictions == positive
        true = labels == positive
        columns = [predicted & true, predicted, true]
    elif metric == "matthews":
        classes = range(
            len(label_names) if label_names else max(predictions.max(), labels.max()) + 1
        )
        columns += [predictions == class_number for class_number in classes]
        columns += [labels == class_number for class_number in classes]
    if metric in _ENTITIES:
        examples = _entities(predictions, labels, label_names or (), lengths)
    else:
        examples = np.zeros((len(lengths), len(columns)))
        np.add.at(examples, np.repeat(np.arange(len(lengths)), lengths), np.stack(columns, axis=1))
    return Scored(score_of_examples(metric, examples), examples)


def positive_class(task: TaskSpec, label_names: Sequence[str] | None) -> int:
    """Return the number of the positive class of metric ``f1``: the one that ``task.positive``
    names, by default class 1; for every other metric 1, which is not used.
    """
    names = tuple(label_names or ())
    if task.metric != "f1" or task.positive is None:
        return 1
    if task.positive in names:
        return names.index(task.positive)
    raise DataError(
        f"task '{task.name}': positive is '{task.positive}', which is no class"
        f"{meant(task.positive, names)}: name one of {', '.join(names)}"
    )


def positive_name(task: TaskSpec, label_names: Sequence[str] | None) -> str | None:
    """Return the name of the positive class of metric ``f1``; None for every other metric."""
    names = tuple(label_names or ()) if task.metric == "f1" else ()
    positive = positive_class(task, names) if names else 0
    return names[positive] if positive < len(names) else None


def score_of(metric: Metric, totals: Float[np.ndarray, "... k"]) -> Values:
    """Return the score of sums of ``Scored.examples``; 0 if nothing was counted, and ``matthews``
    of one class.
    """
    if metric == "f1" or metric in _ENTITIES:
        return _ratio(2 * totals[..., 0], totals[..., 1] + totals[..., 2])
    if metric != "matthews":
        return _ratio(totals[..., 0], totals[..., 1])
    # Gorodkin's R_K (2004), Matthews' correlation of any number of classes.
    correct = totals[..., 0]
    labels = totals[..., 1]
    predicted, true = np.split(totals[..., 2:], 2, axis=-1)
    covariance = correct * labels - (predicted * true).sum(-1)
    spread = (labels**2 - (predicted**2).sum(-1)) * (labels**2 - (true**2).sum(-1))
    return _ratio(covariance, np.sqrt(spread))


def score_of_examples(metric: Metric, examples: Float[np.ndarray, "rows k"]) -> float:
    """Return the score on all examples; rank correlations are 0 if predictions or labels are
    constant.
    """
    if metric not in RANKED:
        return float(score_of(metric, examples.sum(axis=0)))
    # scipy.stats takes a second to import, which other metrics do without.
    from scipy.stats import rankdata

    ranks = rankdata(examples, axis=0)
    return float(np.corrcoef(ranks.T)[0, 1]) if np.ptp(ranks, axis=0).all() else 0.0


def influence(metric: Metric, examples: Float[np.ndarray, "rows k"]) -> Float[np.ndarray, " rows"]:
    """Return what the score loses without each example: the jackknife's values.

    For measures of embeddings and custom metrics, ``examples`` hold them already.
    """
    if metric in EMBEDDING_METRICS or is_custom_metric(metric):
        return examples[:, 0]
    if metric in RANKED:
        without = np.array(
            [
                score_of_examples(metric, np.delete(examples, row, axis=0))
                for row in range(len(examples))
            ]
        )
    else:
        without = np.asarray(score_of(metric, examples.sum(axis=0) - examples))
    return score_of_examples(metric, examples) - without


def mean_of(
    values: Shaped[np.ndarray, " n"], lengths: Int[np.ndarray, " rows"] | None = None
) -> tuple[float, Float[np.ndarray, " rows"]]:
    """Return the mean of numbers and what it loses without each example, which has ``lengths``
    numbers (default: one each).
    """
    # negative_log_perplexity is a mean over tokens, too.
    mean = score_predictions("negative_log_perplexity", values, values, lengths=lengths)
    return mean.score, influence("negative_log_perplexity", mean.examples)


def _entities(
    predictions: np.ndarray, labels: np.ndarray, names: Sequence[str], lengths: np.ndarray
) -> np.ndarray:
    """Count true positives, predicted and true entities of every sentence: [rows, 3]."""
    tags = np.asarray(names, dtype=object)
    last_words = np.cumsum(lengths)[:-1]
    counts = []
    for predicted_tags, true_tags in zip(
        np.split(tags[predictions], last_words), np.split(tags[labels], last_words), strict=True
    ):
        predicted = entities_of(predicted_tags.tolist())
        true = entities_of(true_tags.tolist())
        counts.append((len(predicted & true), len(predicted), len(true)))
    return np.array(counts, dtype=np.float64)


def _ratio(numerator: Values, denominator: Values) -> Values:
    """Divide; 0 where the denominator is 0."""
    zeros = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=zeros, where=denominator != 0)
