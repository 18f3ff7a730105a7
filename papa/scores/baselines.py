"""The baseline of a score: the score of always giving one answer.

Where most labels are of one class, a probe that learned nothing scores high, and F1 gives points
for always answering the positive class: 2p / (1 + p) where a share p of the examples is positive.
So the baseline is the best that any single answer scores on the validation split, whichever class
that is: for accuracy the majority class of the split; for F1 the positive class, which is the
majority of MRPC and not of QQP; for entity F1 the tag that scores best, and 0 where none does
better than ``O``; for the correlations 0. It is chosen on the split that it is scored on, which can
only make it harder to beat.

A masked language model has no single answer that a probability of zero would not ruin: its baseline
gives every token the share that its word has among the masked words of the training split, add-one
smoothed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED
from papa.scores.metrics import Scored, scored
from papa.scores.own import OwnCode, scorer
from papa.spec import TaskSpec


@dataclass(frozen=True)
class ConstantAnswer:
    """The best score that one answer for every example gets.

    Attributes:
        examples: what each validation row adds to it (``papa.scores.examples``).
        answer: the class's name; None where the answer is no class (correlations, masked words).
    """

    score: float
    examples: Float[np.ndarray, "rows k"]
    answer: str | None


def best_constant_answer(
    corpus: TokenisedCorpus, task: TaskSpec, vocabulary: int, code: OwnCode | None = None
) -> ConstantAnswer:
    """The score of always giving one answer, on the validation split; the size of the vocabulary is
    used for masked language models alone.
    """
    labels, lengths = labels_of(corpus.split("validation"))
    if corpus.kind == "mlm":
        seen, _ = labels_of(corpus.split("train"))
        counts = np.bincount(seen, minlength=vocabulary) + 1.0
        log_probabilities = np.log(counts / counts.sum())[labels]
        return _answered(scored(task.metric, log_probabilities, labels, lengths=lengths), None)
    names = corpus.label_names
    if names is None or task.metric == "matthews":
        # One answer for all ranks nothing and correlates with nothing.
        return _answered(scored(task.metric, np.zeros_like(labels), labels, names, lengths), None)
    score = scorer(task, names, code)
    answers = [score(np.full_like(labels, answer), labels, lengths) for answer in range(len(names))]
    best = int(np.argmax([answer.score for answer in answers]))
    return _answered(answers[best], names[best])


def _answered(found: Scored, answer: str | None) -> ConstantAnswer:
    return ConstantAnswer(found.score, found.examples, answer)


def labels_of(
    split: TokenisedSplit,
) -> tuple[Shaped[np.ndarray, " labels"], Int[np.ndarray, " rows"]]:
    """The labels of a split without the ignored ones, and how many each row has."""
    if not split.label_per_token:
        return split.labels, np.ones(len(split), np.int64)
    kept = split.labels != IGNORED
    before = np.concatenate([[0], np.cumsum(kept)])
    return split.labels[kept], np.diff(before[split.offsets])
