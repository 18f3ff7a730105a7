"""The losses of a native head: what a number for each answer says about it, the smaller the better.

One loss follows from what the model outputs and from whether there are labels. By it λ is trained,
and heads are scored, in a study and in memory alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from papa.native.batches import Batch
from papa.native.outputs import Answers
from papa.spec import TaskSpec
from papa.text.tokens import IGNORED


class AnswerLosses(NamedTuple):
    """A loss of each answer, and how many each text has."""

    values: Float[Tensor, " answers"]
    lengths: Int[Tensor, " texts"]


@dataclass(frozen=True)
class Loss:
    """A loss of answers.

    Attributes:
        name: What a frame of head scores calls it.
        objective: What λ is trained to keep low, in words.
        compares: Whether it compares answers with those of the original model.
        is_label_free: Whether it reads no labels of a task.
        of_answers: Takes the original model's answers, which are empty where it compares nothing,
            the answers, and their batch; returns the loss of each answer. Gradients pass.
    """

    name: str
    objective: str
    compares: bool
    is_label_free: bool
    of_answers: Callable[[Answers, Answers, Batch], AnswerLosses]


def kl_divergence(
    before: Float[Tensor, "answers classes"], after: Float[Tensor, "answers classes"]
) -> Float[Tensor, " answers"]:
    """Return KL(before‖after) of each answer in nats, from logits; gradients pass."""
    log_before = before.float().log_softmax(-1)
    log_after = after.float().log_softmax(-1)
    return F.kl_div(log_after, log_before, reduction="none", log_target=True).sum(-1)


def _of_words(before: Answers, after: Answers, batch: Batch) -> AnswerLosses:
    return AnswerLosses(-after["log_probabilities"], after["lengths"])


def _of_labels(before: Answers, after: Answers, batch: Batch) -> AnswerLosses:
    """Return the cross-entropy of classes, that of each label where a head decides on each by
    itself, or the squared error of numbers.
    """
    assert batch.labels is not None
    labels = batch.labels
    if "numbers" in after:
        numbers = after["numbers"]
        return AnswerLosses((numbers - labels.to(numbers)).square(), after["lengths"])
    if labels.is_floating_point():  # Vectors, a number for each label.
        values = F.cross_entropy(after["logits"].float(), labels.flatten().long(), reduction="none")
        return AnswerLosses(values, after["lengths"])
    labelled = labels != IGNORED
    logits = after["logits"].float()
    # Of texts without a label some have logits; of tokens without one none has.
    logits = logits[labelled] if labels.dim() == 1 else logits
    values = F.cross_entropy(logits, labels[labelled], reduction="none")
    return AnswerLosses(values, labelled.reshape(len(labels), -1).sum(1))


def _of_embeddings(before: Answers, after: Answers, batch: Batch) -> AnswerLosses:
    cosines = F.cosine_similarity(after["embeddings"], before["embeddings"])
    return AnswerLosses(1 - cosines, after["lengths"])


def _of_answers(before: Answers, after: Answers, batch: Batch) -> AnswerLosses:
    if "numbers" in after:
        return AnswerLosses((after["numbers"] - before["numbers"]).square(), after["lengths"])
    name = "words" if "words" in after else "logits"
    return AnswerLosses(kl_divergence(before[name], after[name]), after["lengths"])


def _of_scores(before: Answers, after: Answers, batch: Batch) -> AnswerLosses:
    return AnswerLosses(-after["score"], after["lengths"])


WORDS = Loss("loss", "the loss of the model itself", False, True, _of_words)
LABELS = Loss("loss", "the loss of the model's native head", False, False, _of_labels)
EMBEDDINGS = Loss(
    "cosine", "one less the cosine of embeddings to the original's", True, True, _of_embeddings
)
ANSWERS = Loss(
    "divergence", "the divergence of answers from the original's", True, True, _of_answers
)
SCORES = Loss("score", "what the user's score loses", False, True, _of_scores)


def loss_of_task(task: TaskSpec) -> Loss:
    """Return the loss of a study's native head on a task."""
    if task.of_embeddings:
        return EMBEDDINGS
    if task.kind in ("mlm", "causal"):
        return WORDS
    return ANSWERS if task.ranks_by_divergence else LABELS


def loss_of_answers(answers: Answers, labelled: bool = False) -> Loss:
    """Return the loss of an in-memory model, by what the answers to one batch are; if ``labelled``,
    they are compared with labels, no longer with the original's.
    """
    if "score" in answers:
        return SCORES
    if "embeddings" in answers:
        return EMBEDDINGS
    if "log_probabilities" in answers:
        return WORDS
    return LABELS if labelled else ANSWERS
