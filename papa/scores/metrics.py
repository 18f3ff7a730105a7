"""The metrics of the paper's tasks (paper, Section 4.1), higher is better for all of them: as sums
over validation examples, so that a score without one example costs a subtraction. Rank
correlations alone need the examples themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from threading import Lock

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.errors import DataError
from papa.spec import Metric, TaskSpec
from papa.spec.task import EMBEDDING_METRICS, RANKED, is_own

Values = np.ndarray | np.floating
"""One number for each set of totals; a scalar for one set."""
_filters = Lock()
"""Warning filters are global to the process: one thread at a time may change them."""
MEANINGS: dict[Metric, str] = {
    "accuracy": "the share of labels that are right",
    "matthews": (
        "the Matthews correlation of predicted and true classes, -1 to 1; 0 where either are all "
        "the same"
    ),
    "f1": "F1 of one class: the task's `positive`, else class 1",
    "entity_f1": "micro-averaged F1 over the entities of IOB2 tags, as conlleval counts them",
    "token_f1": "micro-averaged F1 over words, which is their accuracy",
    "bare_entity_f1": (
        "F1 over tags without a prefix, read as entities: the paper's POS score (docs/fidelity.md)"
    ),
    "spearman": "Spearman's rank correlation of predicted and true numbers; the label is a number",
    "cosine_spearman": (
        "Spearman's rank correlation of the cosine of two embeddings with the label, a number"
    ),
    "negative_log_perplexity": "the mean natural log-probability of the masked tokens",
    "agreement": "the share of the own head's answers that stay as the original gives them",
    "nearest_10": (
        "the share of a sentence's ten nearest neighbours, by its own embeddings, that stay among "
        "them"
    ),
    "nearest_1": "the share of sentences whose nearest neighbour stays",
    "similarities": "Spearman's correlation of the cosines of all pairs with the original's",
    "cosine": "the mean cosine of a sentence's embedding to the original's",
    "own": "what a function of the user's gives; in a study its metric is `module:name`",
}
"""What a score in each metric is."""


@dataclass(frozen=True)
class Scored:
    """A score and what each validation example adds to it."""

    score: float
    examples: Float[np.ndarray, "rows k"]


@dataclass(frozen=True)
class Answers:
    """Predictions on a validation split and what they should have been, as in ``scored``."""

    predictions: Shaped[np.ndarray, " n"]
    labels: Shaped[np.ndarray, " n"]
    lengths: Int[np.ndarray, " rows"]
    label_names: Sequence[str] | None
    positive: int


def scored(
    metric: Metric,
    predictions: np.ndarray,
    labels: np.ndarray,
    label_names: Sequence[str] | None = None,
    lengths: np.ndarray | None = None,
    positive: int = 1,
) -> Scored:
    """The score of predictions on a validation split, example by example.

    Args:
        predictions: classes as int64 [n]; numbers [n] for rank correlations; for
            ``negative_log_perplexity`` the natural log-probability [n] that each masked token's
            true word received.
        labels: the true classes or numbers [n]; unused by ``negative_log_perplexity``.
        label_names: of the classes; tags for the metrics over entities.
        lengths: labels of each example, summing to n, where an example has several; None: one each.
        positive: the positive class of ``f1``.
    """
    if len(predictions) == 0:
        raise DataError(
            f"{metric}: there is nothing to score: the validation split holds no labels"
        )
    lengths = np.ones(len(predictions), np.int64) if lengths is None else lengths
    examples = example_counts(metric, Answers(predictions, labels, lengths, label_names, positive))
    return Scored(score_of_examples(metric, examples), examples)


def positive_class(task: TaskSpec, label_names: Sequence[str] | None) -> int:
    """The number of the positive class of metric ``f1``: the one that ``task.positive`` names, else
    class 1, as of every other metric, which has none.
    """
    if task.metric != "f1":
        return 1
    names = tuple(label_names or ())
    if task.positive is None:
        if len(names) > 2:
            raise DataError(
                f"task '{task.name}': f1 needs a positive class and there are {len(names)} classes "
                f"({', '.join(names)}): name one of them as the task's 'positive', or score with "
                "metric accuracy"
            )
        return 1
    if task.positive not in names:
        close = get_close_matches(task.positive, names, 1)
        nearest = sorted(names, key=lambda name: name not in close)
        raise DataError(
            f"task '{task.name}': positive is '{task.positive}', and no class has that name: use "
            f"one of {', '.join(nearest)}"
        )
    return names.index(task.positive)


def positive_name(task: TaskSpec, label_names: Sequence[str] | None) -> str | None:
    """The name of the positive class of metric ``f1``; None for every other metric."""
    if task.metric != "f1" or not label_names:
        return None
    positive = positive_class(task, label_names)
    return label_names[positive] if positive < len(label_names) else None


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
