"""The baseline of a score: the best that always giving one answer scores on the validation split.

Where most labels are of one class, a probe that learned nothing scores high, and F1 gives points
for always answering the positive class. The answer is chosen on the split that it is scored on,
which can only make it harder to beat; correlations are 0. A masked language model has no single
answer that a probability of zero would not ruin: its baseline gives every token the share that its
word has among the masked words of the training split, add-one smoothed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Shaped

from papa.corpora.corpus import TokenisedCorpus, TokenisedSplit
from papa.corpora.tokens import IGNORED
from papa.scores.metrics import Scored
from papa.scores.own import OwnCode, scorer
from papa.spec import TaskSpec


@dataclass(frozen=True)
class ConstantAnswer(Scored):
    """The best score that one answer for every example gets; the answer is None where it is no
    class (correlations, masked words).
    """

    answer: str | None


def best_constant_answer(
    corpus: TokenisedCorpus, task: TaskSpec, vocabulary: int, code: OwnCode | None = None
) -> ConstantAnswer:
    """The score of always giving one answer, on the validation split."""
    labels, lengths = labels_of(corpus.split("validation"))
    names = corpus.label_names
    if corpus.kind == "mlm":
        seen, _ = labels_of(corpus.split("train"))
        counts = np.bincount(seen, minlength=vocabulary) + 1.0
        names, answers = None, [np.log(counts / counts.sum())[labels]]
    elif names is None or task.metric == "matthews":
        # One answer for all ranks nothing and correlates with nothing.
        names, answers = None, [np.zeros_like(labels)]
    else:
        answers = [np.full_like(labels, answer) for answer in range(len(names))]
    score = scorer(task, corpus.label_names, code)
    found = [score(answer, labels, lengths) for answer in answers]
    best = int(np.argmax([one.score for one in found]))
    answer = names[best] if names else None
    return ConstantAnswer(found[best].score, found[best].examples, answer)


def labels_of(
    split: TokenisedSplit,
) -> tuple[Shaped[np.ndarray, " labels"], Int[np.ndarray, " rows"]]:
    """The labels of a split without the ignored ones, and how many each row has."""
    if not split.label_per_token:
        return split.labels, np.ones(len(split), np.int64)
    kept = split.labels != IGNORED
    return split.labels[kept], split.probed_lengths
