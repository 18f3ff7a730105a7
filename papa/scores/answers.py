"""What the answers of a model's native head score, and which of its classes are a task's
(docs/results.md).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Real, Shaped
from scipy.special import log_softmax

from papa.errors import DataError, joined
from papa.scores.custom import CustomCode, score_by_custom_metric
from papa.scores.embeddings import check_sentences, embedding_score, normalised
from papa.scores.metrics import Scored, mean_of, positive_class, score_predictions
from papa.spec import Metric, TaskSpec
from papa.spec.task import EMBEDDING_METRICS, LOSS, UNLABELLED_METRICS
from papa.text.corpus import TokenisedSplit
from papa.text.tokens import IGNORED

_ROUNDING = 1e-6
"""Numbers that differ by less differ by rounding."""
AnswerArrays = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or ``numbers`` [answers]; or of words ``top`` and, where the true one is known,
``log_probabilities`` [answers], the likeliest and that of the true one; or ``score`` [rows], of the
user's own."""


def score_on_task(
    task: TaskSpec,
    original: AnswerArrays,
    replaced: AnswerArrays,
    split: TokenisedSplit,
    names: Sequence[str] | None,
    head_names: Sequence[str],
    code: CustomCode | None = None,
) -> Scored:
    """Return what the answers of a native head score on a task.

    Args:
        task: The task, whose metric says whether labels or the original's answers are compared.
        original: The answers of the original model.
        replaced: The answers with some heads constant.
        split: The rows that are answered, with their labels.
        names: The task's classes.
        head_names: The head's classes.
        code: A custom metric.
    """
    is_unlabelled = task.metric in UNLABELLED_METRICS or task.metric == LOSS
    if "score" in replaced or is_unlabelled:
        check_sentences(task, len(split))
        return score_by_metric(task.metric, original, replaced)
    if task.kind == "similarity":
        unit = normalised(replaced["embeddings"])
        cosines = (unit[::2] * unit[1::2]).sum(1)
        return score_predictions(task.metric, cosines, labels_and_lengths(split)[0][::2])
    labels, lengths = labels_and_lengths(split)
    if task.regression:
        return score_by_metric(task.metric, original, replaced, labels)
    ids = class_ids(names or (), head_names, task)
    if code and code.metric:
        # The task's numbers of classes, as beside a probe; -1 for a class of the head alone.
        class_of_head_class = np.full(len(head_names), -1)
        class_of_head_class[ids] = np.arange(len(ids))
        predictions = class_of_head_class[_top(replaced)]
        return score_by_custom_metric(code.metric, predictions, labels, lengths)
    positive = int(ids[positive_class(task, names)]) if task.metric == "f1" else 1
    return score_predictions(
        task.metric, _top(replaced), ids[labels], head_names, lengths, positive
    )


def score_by_metric(
    metric: Metric,
    original: AnswerArrays,
    replaced: AnswerArrays,
    labels: Shaped[np.ndarray, " answers"] | None = None,
) -> Scored:
    """Return what the answers of a native head score, against the original's or against labels in
    the head's numbering, where a negative class counts for nothing.
    """
    lengths = replaced["lengths"]
    if "score" in replaced:
        score, influence = mean_of(replaced["score"])
        return Scored(score, influence[:, None])
    if metric in EMBEDDING_METRICS:
        score, influence = embedding_score(metric, original["embeddings"], replaced["embeddings"])
        return Scored(score, influence[:, None])
    if metric == "agreement":
        return score_predictions(metric, _top(replaced), _top(original), lengths=lengths)
    if "log_probabilities" in replaced:
        values = replaced["log_probabilities"]
        return score_predictions(metric, values, values, lengths=lengths)
    assert labels is not None, f"{metric} compares answers with labels"
    if "numbers" in replaced:
        return score_predictions(metric, replaced["numbers"], labels)
    labelled = labels >= 0
    known = labels[labelled]
    answers = replaced["logits"][labelled]
    examples = np.repeat(np.arange(len(lengths)), lengths)[labelled]
    lengths = np.bincount(examples, minlength=len(lengths))
    if metric == LOSS:
        chosen = log_softmax(answers.astype(np.float64), axis=1)[np.arange(len(known)), known]
        return score_predictions(metric, chosen, known, lengths=lengths)
    return score_predictions(metric, answers.argmax(1), known, lengths=lengths)


def _top(answers: AnswerArrays) -> Real[np.ndarray, " answers"]:
    """Return the likeliest word or class of each answer, by its number."""
    return answers["top"] if "top" in answers else answers["logits"].argmax(1)


def same_answer(answers: AnswerArrays, classes: Sequence[str]) -> str:
    """Return the answer that every example gets, a class by its name; "" where answers differ."""
    if "score" in answers or len(answers["lengths"]) < 2:
        return ""
    if "embeddings" in answers:
        is_same = bool((np.ptp(normalised(answers["embeddings"]), axis=0) < _ROUNDING).all())
        return "one embedding" if is_same else ""
    if "numbers" in answers:
        numbers = answers["numbers"]
        return f"{numbers[0]:g}" if np.ptp(numbers) <= _ROUNDING * abs(numbers[0]) else ""
    top = _top(answers)
    if np.ptp(top):
        return ""
    answer = int(top[0])
    if "top" in answers:
        return f"token {answer}"
    return classes[answer] if answer < len(classes) else str(answer)


def class_ids(
    names: Sequence[str], head_names: Sequence[str], task: TaskSpec
) -> Int[np.ndarray, " classes"]:
    """Return the number that a model's head has for each class of a task: by name; where the head
    has no names, by the task's ``labels``, or by classes that are numbers themselves.
    """
    if all(name == f"LABEL_{number}" for number, name in enumerate(head_names)):
        if task.labels and len(names) <= len(head_names):
            return np.arange(len(names))
        head_names = [str(number) for number in range(len(head_names))]
        if not task.labels and not all(map(str.isdecimal, names)):
            raise DataError(
                f"task '{task.name}' has the labels {joined(names)}, and the model's head does not "
                f"name its classes (LABEL_0 to LABEL_{len(head_names) - 1}): set the task's "
                "labels, in the head's order"
            )
    unknown = [name for name in names if name not in head_names]
    if unknown:
        raise DataError(
            f"task '{task.name}' has labels that the model's head does not know "
            f"({joined(unknown)}): expected {joined(head_names)}, its id2label: rename them in the "
            "data, or name the task's labels so"
        )
    return np.array([head_names.index(name) for name in names])


def classes_in_words(names: Sequence[str] | None, head_names: Sequence[str], task: TaskSpec) -> str:
    """Return which class of a task is which of a model's head, in words; nothing where it has
    none.
    """
    if names is None or task.columns.label is None:
        return ""
    both = zip(names, class_ids(names, head_names, task), strict=True)
    return ", ".join(f"{name} = {head_names[number]}" for name, number in both)


def labels_and_lengths(
    split: TokenisedSplit,
) -> tuple[Shaped[np.ndarray, " labels"], Int[np.ndarray, " rows"]]:
    """Return the labels of a split without the ignored ones, and how many each row has."""
    if not split.label_per_token:
        return split.labels, np.ones(len(split), np.int64)
    return split.labels[split.labels != IGNORED], split.probed_lengths
