"""The metrics of the paper's tasks (paper, Section 4.1), higher is better for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from jaxtyping import Float

from papa.errors import DataError
from papa.scores.examples import Answers, example_counts, score_of_examples
from papa.spec import Metric, TaskSpec

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
    """A score and what each validation example adds to it (``papa.scores.examples``)."""

    score: float
    examples: Float[np.ndarray, "rows k"]


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
    if metric != "negative_log_perplexity" and len(predictions) != len(labels):
        raise DataError(
            f"{metric}: expected {len(labels)} predictions, one per label, found {len(predictions)}"
        )
    if metric in ("entity_f1", "bare_entity_f1") and (label_names is None or lengths is None):
        raise DataError(
            f"{metric}: label_names and lengths are needed to read tags by sentence: give both"
        )
    lengths = np.ones(len(predictions), np.int64) if lengths is None else lengths
    if (total := int(np.sum(lengths))) != len(predictions):
        raise DataError(
            f"{metric}: expected lengths that sum to {len(predictions)}, one per example, found "
            f"{total}"
        )
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
