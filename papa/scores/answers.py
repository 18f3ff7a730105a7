"""What a model's own answers score, and which of its classes are a task's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from papa.corpora.corpus import TokenisedSplit
from papa.errors import DataError, joined
from papa.scores.baselines import labels_of
from papa.scores.fidelity import LEAST_SENTENCES, embedding_score, pair_cosines
from papa.scores.metrics import Scored, mean_of, positive_class, scored
from papa.scores.own import OwnCode, own_metric_scored
from papa.spec import TaskSpec
from papa.spec.task import EMBEDDING_METRICS

MOST_SENTENCES = 2_000
"""Whose similarities are ranked, pair by pair."""
Answers = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or of words ``top`` and ``log_probabilities`` [answers], the likeliest and that
of the true one; or ``score`` [rows], of the user's own."""


def own_score(
    task: TaskSpec,
    before: Answers,
    after: Answers,
    split: TokenisedSplit,
    names: Sequence[str] | None,
    own: Sequence[str],
    code: OwnCode | None = None,
) -> Scored:
    """What answers score: against the original's, or against the task's labels."""
    lengths = after["lengths"]
    if "score" in after:
        score, influence = mean_of(after["score"])
        return Scored(score, influence[:, None])
    if task.kind == "similarity":
        cosines = pair_cosines(after["embeddings"])
        return scored(task.metric, cosines, labels_of(split)[0][::2])
    if task.of_embeddings:
        check_sentences(task, len(split))
        score, influence = embedding_score(task.metric, before["embeddings"], after["embeddings"])
        return Scored(score, influence[:, None])
    if task.metric == "agreement":
        return scored("agreement", _top(after), _top(before), lengths=lengths)
    labels, lengths = labels_of(split)
    if task.metric == "negative_log_perplexity":
        return scored(task.metric, after["log_probabilities"], labels, lengths=lengths)
    if task.regression:
        return scored(task.metric, after["logits"][:, 0], labels)
    ids = class_ids(names or (), own, task)
    if code and code.metric:
        # With the task's numbers of classes, as beside a probe; a class of the head alone is -1.
        numbers = np.full(len(own), -1)
        numbers[ids] = np.arange(len(ids))
        return own_metric_scored(code.metric, numbers[_top(after)], labels, lengths)
    positive = int(ids[positive_class(task, names)]) if task.metric == "f1" else 1
    return scored(task.metric, _top(after), ids[labels], own, lengths, positive)


def _top(answers: Answers) -> Int[np.ndarray, " answers"]:
    return answers["top"] if "top" in answers else answers["logits"].argmax(1)


def check_sentences(task: TaskSpec, rows: int) -> None:
    """Refuse a metric of embeddings with too few or too many validation rows."""
    if task.metric not in EMBEDDING_METRICS:
        return
    count = int(task.metric.removeprefix("nearest_")) if task.metric.startswith("nearest") else 0
    least = max(LEAST_SENTENCES, 2 * count + 1)
    if not least <= rows <= MOST_SENTENCES:
        raise DataError(
            f"task '{task.name}' has {rows} validation rows, and {task.metric} takes {least} to "
            f"{MOST_SENTENCES:,} sentences: give more, or set validation_rows"
        )


def class_ids(
    names: Sequence[str], own: Sequence[str], task: TaskSpec
) -> Int[np.ndarray, " classes"]:
    """The number that a model's head has for each class of a task: by name; where the head has no
    names, by the task's ``labels``, or by classes that are numbers themselves.
    """
    if all(name == f"LABEL_{number}" for number, name in enumerate(own)):
        if task.labels and len(names) <= len(own):
            return np.arange(len(names))
        own = [str(number) for number in range(len(own))]
        if not task.labels and not all(map(str.isdecimal, names)):
            raise DataError(
                f"task '{task.name}' has the labels {joined(names)}, and the model's head does not "
                f"name its classes (LABEL_0 to LABEL_{len(own) - 1}): set the task's labels, in "
                "the head's order"
            )
    unknown = [name for name in names if name not in own]
    if unknown:
        raise DataError(
            f"task '{task.name}' has labels that the model's head does not know "
            f"({joined(unknown)}): expected {joined(own)}, its id2label: rename them in the data, "
            "or name the task's labels so"
        )
    return np.array([own.index(name) for name in names])


def classes_told(names: Sequence[str] | None, own: Sequence[str], task: TaskSpec) -> str:
    """Which class of a task is which of a model's head, in words; nothing where it has none."""
    if names is None or task.columns.label is None:
        return ""
    both = zip(names, class_ids(names, own, task), strict=True)
    return ", ".join(f"{name} = {own[number]}" for name, number in both)
