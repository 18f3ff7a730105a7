"""The baseline that gives one answer to every example: the best, or the commonest label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from papa.scores.answers import labels_and_lengths
from papa.scores.custom import CustomCode, scorer
from papa.scores.metrics import Scored, score_predictions
from papa.spec import Metric, TaskSpec
from papa.spec.task import LOSS
from papa.text.corpus import TokenisedCorpus


@dataclass(frozen=True)
class ConstantAnswer(Scored):
    """What one answer to every example scores.

    Attributes:
        answer: The class; None where it is no class (correlations, masked words).
    """

    answer: str | None


def best_constant_answer(
    corpus: TokenisedCorpus, task: TaskSpec, vocabulary: int, code: CustomCode | None = None
) -> ConstantAnswer:
    """Return the best score that one answer for every example gets on the validation split, chosen
    there, which can only make it harder to beat.
    """
    labels, lengths = labels_and_lengths(corpus.split("validation"))
    names = corpus.label_names
    if corpus.kind == "mlm":
        words, _ = labels_and_lengths(corpus.split("train"))
        # One more for each word, so that words that the training split lacks have a logarithm.
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
    answer = classes[commonest] if commonest < len(classes) else None
    return ConstantAnswer(**vars(score), answer=answer)
