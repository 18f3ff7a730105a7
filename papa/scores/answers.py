"""What a model's own answers score, which of its classes are a task's; what a changed model keeps
of its answers; and the baseline of a probe, the best single answer (docs/results.md).

Every measure of what is kept has the jackknife's 95 % interval over examples; for similarities and
neighbours an example is a sentence, with all of its pairs. The bootstrap will not do there: a
sentence drawn twice is its own nearest neighbour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Real, Shaped
from scipy.special import log_softmax

from papa.errors import DataError, joined
from papa.scores.custom import CustomCode, score_by_custom_metric, scorer
from papa.scores.intervals import Interval, clipped, over_examples, unit_of
from papa.scores.metrics import Scored, mean_of, positive_class, score_predictions
from papa.spec import Metric, TaskSpec
from papa.spec.task import EMBEDDING_METRICS, LOSS, UNLABELLED_METRICS
from papa.text.corpus import TokenisedCorpus, TokenisedSplit
from papa.text.tokens import IGNORED

_SAME = 1e-6
"""Numbers that differ by less differ by rounding."""
LEAST_SENTENCES = 4
"""Fewer have too few similarities to rank."""
Influenced = tuple[float, Float[np.ndarray, " sentences"]]
"""A measure, and what it loses without each sentence."""
MOST_SENTENCES = 2_000
"""Whose similarities are ranked, pair by pair."""
AnswerArrays = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or ``numbers`` [answers]; or of words ``top`` and, where the true one is known,
``log_probabilities`` [answers], the likeliest and that of the true one; or ``score`` [rows], of the
user's own."""


def native_score(
    task: TaskSpec,
    before: AnswerArrays,
    after: AnswerArrays,
    split: TokenisedSplit,
    names: Sequence[str] | None,
    head_names: Sequence[str],
    code: CustomCode | None = None,
) -> Scored:
    """Return what answers score: against the original's, or against the task's labels."""
    if "score" in after:
        return score_answers(task.metric, before, after)
    if task.kind == "similarity":
        unit = _normalised(after["embeddings"])
        cosines = (unit[::2] * unit[1::2]).sum(1)
        return score_predictions(task.metric, cosines, labels_of(split)[0][::2])
    if task.metric in UNLABELLED_METRICS or task.metric == LOSS:
        check_sentences(task, len(split))
        return score_answers(task.metric, before, after)
    labels, lengths = labels_of(split)
    if task.regression:
        return score_answers(task.metric, before, after, labels)
    ids = class_ids(names or (), head_names, task)
    if code and code.metric:
        # With the task's numbers of classes, as beside a probe; a class of the head alone is -1.
        numbers = np.full(len(head_names), -1)
        numbers[ids] = np.arange(len(ids))
        return score_by_custom_metric(code.metric, numbers[_top(after)], labels, lengths)
    positive = int(ids[positive_class(task, names)]) if task.metric == "f1" else 1
    return score_predictions(task.metric, _top(after), ids[labels], head_names, lengths, positive)


def score_answers(
    metric: Metric,
    before: AnswerArrays,
    after: AnswerArrays,
    labels: Shaped[np.ndarray, " answers"] | None = None,
) -> Scored:
    """Return what the answers of a native head score, against the original's or against labels in
    the head's numbering, where a negative class counts for nothing.
    """
    lengths = after["lengths"]
    if "score" in after:
        score, influence = mean_of(after["score"])
        return Scored(score, influence[:, None])
    if metric in EMBEDDING_METRICS:
        score, influence = embedding_score(metric, before["embeddings"], after["embeddings"])
        return Scored(score, influence[:, None])
    if metric == "agreement":
        return score_predictions(metric, _top(after), _top(before), lengths=lengths)
    if "log_probabilities" in after:
        values = after["log_probabilities"]
        return score_predictions(metric, values, values, lengths=lengths)
    assert labels is not None, f"{metric} compares answers with labels"
    if "numbers" in after:
        return score_predictions(metric, after["numbers"], labels)
    labelled = labels >= 0
    known = labels[labelled]
    answers = after["logits"][labelled]
    examples = np.repeat(np.arange(len(lengths)), lengths)[labelled]
    lengths = np.bincount(examples, minlength=len(lengths))
    if metric == LOSS:
        chosen = log_softmax(answers.astype(np.float64), axis=1)[np.arange(len(known)), known]
        return score_predictions(metric, chosen, known, lengths=lengths)
    return score_predictions(metric, answers.argmax(1), known, lengths=lengths)


def _top(answers: AnswerArrays) -> Real[np.ndarray, " answers"]:
    return answers["top"] if "top" in answers else answers["logits"].argmax(1)


def same_answer(answers: AnswerArrays, classes: Sequence[str]) -> str:
    """Return the answer that every example gets, a class by its name; "" where answers differ."""
    if "score" in answers or len(answers["lengths"]) < 2:
        return ""
    if "embeddings" in answers:
        is_same = bool((np.ptp(_normalised(answers["embeddings"]), axis=0) < _SAME).all())
        return "one embedding" if is_same else ""
    if "numbers" in answers:
        numbers = answers["numbers"]
        return f"{numbers[0]:g}" if np.ptp(numbers) <= _SAME * abs(numbers[0]) else ""
    top = _top(answers)
    if np.ptp(top):
        return ""
    answer = int(top[0])
    return (
        f"token {answer}" if "top" in answers else dict(enumerate(classes)).get(answer, str(answer))
    )


def check_sentences(task: TaskSpec, rows: int) -> None:
    """Raise an error if a metric of embeddings has too few or too many validation rows."""
    if task.metric not in EMBEDDING_METRICS:
        return
    count = int(task.metric.removeprefix("nearest_")) if task.metric.startswith("nearest") else 0
    fewest = max(LEAST_SENTENCES, 2 * count + 1)
    if not fewest <= rows <= MOST_SENTENCES:
        raise DataError(
            f"task '{task.name}' has {rows} validation rows, and {task.metric} needs {fewest} "
            f"to {MOST_SENTENCES}: give other rows, or set validation_rows"
        )


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


@dataclass(frozen=True)
class ConstantAnswer(Scored):
    """Whose answer is None where it is no class (correlations, masked words)."""

    answer: str | None


def best_constant_answer(
    corpus: TokenisedCorpus, task: TaskSpec, vocabulary: int, code: CustomCode | None = None
) -> ConstantAnswer:
    """Return the best score that one answer for every example gets on the validation split, chosen
    there, which can only make it harder to beat.
    """
    labels, lengths = labels_of(corpus.split("validation"))
    names = corpus.label_names
    if corpus.kind == "mlm":
        words, _ = labels_of(corpus.split("train"))
        counts = np.bincount(words, minlength=vocabulary) + 1.0
        names = None
        answers = [np.log(counts / counts.sum())[labels]]
    elif names is None or task.metric == "matthews":
        # One answer for all ranks nothing and correlates with nothing.
        names = None
        answers = [np.zeros_like(labels)]
    else:
        answers = [np.full_like(labels, answer) for answer in range(len(names))]
    score = scorer(task, corpus.label_names, code)
    scores = [score(answer, labels, lengths) for answer in answers]
    best = int(np.argmax([scored_answer.score for scored_answer in scores]))
    return ConstantAnswer(**vars(scores[best]), answer=names[best] if names else None)


def commonest_answer(
    metric: Metric, labels: Int[np.ndarray, " texts"], classes: Sequence[str]
) -> ConstantAnswer:
    """Return the score of the commonest label as the answer to every text; by loss, of the labels'
    shares. A text without a class has a negative number.
    """
    labelled = labels >= 0
    known = labels[labelled]
    counts = np.bincount(known, minlength=1)
    commonest = int(counts.argmax())
    lengths = labelled.astype(np.int64)
    if metric == LOSS:
        shares = np.log(counts[known] / counts.sum())
        score = score_predictions(metric, shares, known, lengths=lengths)
        return ConstantAnswer(**vars(score), answer=None)
    score = score_predictions(metric, np.full_like(known, commonest), known, lengths=lengths)
    return ConstantAnswer(**vars(score), answer=dict(enumerate(classes)).get(commonest))


def labels_of(
    split: TokenisedSplit,
) -> tuple[Shaped[np.ndarray, " labels"], Int[np.ndarray, " rows"]]:
    """Return the labels of a split without the ignored ones, and how many each row has."""
    if not split.label_per_token:
        return split.labels, np.ones(len(split), np.int64)
    return split.labels[split.labels != IGNORED], split.probed_lengths


def embedding_fidelity(
    before: Float[np.ndarray, "sentences width"], after: Float[np.ndarray, "sentences new_width"]
) -> dict[str, Interval]:
    """Return how much two models' embeddings of the same sentences, at least four, agree.

    ``cosine``: the mean cosine of a sentence's embedding to its own, where both have one width.
    ``similarities``: Spearman's correlation of the cosines of all pairs of sentences.
    ``nearest_1``, ``nearest_10``: the share of a sentence's nearest neighbours that stay among its
    nearest, where there are more than twice as many sentences.
    """
    measures = ["cosine"] if before.shape == after.shape else []
    measures.append("similarities")
    measures += [f"nearest_{count}" for count in (1, 10) if len(before) > 2 * count]
    return {
        name: clipped(name, over_examples(*embedding_score(name, before, after), unit_of(name)))
        for name in measures
    }


def embedding_score(
    measure: str,
    before: Float[np.ndarray, "sentences width"],
    after: Float[np.ndarray, "sentences new_width"],
) -> Influenced:
    before, after = (_normalised(embeddings) for embeddings in (before, after))
    if measure == "cosine":
        return mean_of((before * after).sum(1))
    similarities = before @ before.T, after @ after.T
    if measure == "similarities":
        return _rank_agreement(*similarities)
    return _neighbours_kept(*similarities, int(measure.removeprefix("nearest_")))


def mean_over_examples(
    measure: str,
    values: Shaped[np.ndarray, " answers"],
    lengths: Int[np.ndarray, " examples"] | None = None,
) -> Interval:
    """Return the mean of values, numbers or booleans, with its interval over the examples that they
    belong to, ``lengths`` values to each, within the range of the measure. Numbers that are all
    equal have no bounds, as nobody knows their scale.
    """
    unit = 1.0 if values.dtype == bool else math.nan
    return clipped(measure, over_examples(*mean_of(values, lengths), unit))


def _normalised(
    embeddings: Float[np.ndarray, "sentences width"],
) -> Float[np.ndarray, "sentences width"]:
    embeddings = embeddings.astype(np.float64)
    return embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)


def _rank_agreement(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"]
) -> Influenced:
    """Return Spearman's correlation over pairs; for a sentence left out, all of its pairs are."""
    first, second = np.triu_indices(len(before), 1)
    # Ranks among all pairs, so that those among fewer need no other sort.
    dense = np.stack(
        [np.unique(cosines[first, second], return_inverse=True)[1] for cosines in (before, after)]
    )
    correlation = _correlation(dense)
    pairs_without = ((first != out) & (second != out) for out in range(len(before)))
    return correlation, np.array(
        [correlation - _correlation(dense[:, pairs]) for pairs in pairs_without]
    )


def _correlation(values: Int[np.ndarray, "2 pairs"]) -> float:
    """Return Spearman's correlation of values that are small integers; 0 where one side is
    constant.
    """
    counts = [np.bincount(side) for side in values]
    ranks = [(np.cumsum(n) - n / 2)[side] for n, side in zip(counts, values, strict=True)]
    return float(np.corrcoef(ranks)[0, 1]) if all(map(np.ptp, ranks)) else 0.0


def _neighbours_kept(
    before: Float[np.ndarray, "n n"], after: Float[np.ndarray, "n n"], count: int
) -> Influenced:
    """Return the share of the nearest ``count`` that is kept; for a sentence left out, the next
    nearest takes its place.
    """
    cosines = np.stack([before, after]) - np.diag(np.full(len(before), np.inf))
    nearest = np.argsort(-cosines, axis=2, kind="stable")[:, :, : count + 1]

    def share_without(out: int) -> float:
        lists = nearest[:, np.arange(len(before)) != out]
        remain = lists != out
        first, second = lists[remain & (remain.cumsum(axis=2) <= count)].reshape(2, -1, count)
        return float((first[:, :, None] == second[:, None]).sum() / first.size)

    share = share_without(-1)
    return share, share - np.array([share_without(out) for out in range(len(before))])
