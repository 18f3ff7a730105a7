"""The native head of an in-memory model: its texts, its loss, and what its answers score."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from transformers import PreTrainedModel

from papa.errors import DataError, SpecError, joined
from papa.native.batches import InMemoryTexts, Inputs
from papa.native.losses import loss_of_answers
from papa.native.outputs import Answers, check_means, has_many_labels
from papa.native.passes import NativeHead
from papa.scores.custom import RequestedScore, custom_name
from papa.scores.embeddings import LEAST_SENTENCES
from papa.spec import Metric
from papa.spec.orders import Unit
from papa.spec.task import LOSS

LABELLED_METRICS: tuple[Metric, ...] = ("accuracy", LOSS, "spearman")
"""By which answers that are no words are compared with labels."""


def open_scored(
    model: PreTrainedModel,
    batches: Sequence[Inputs],
    score: RequestedScore | None,
    part: str | None = None,
    unit: Unit = "head",
) -> NativeHead:
    """Return the native head as ``open_in_memory`` does; raise the errors of ``metric_of`` unless
    the score is of its answers.
    """
    native = open_in_memory(model, batches, score, part, unit)
    if score is not None:
        metric_of(native, score)
    return native


def open_in_memory(
    model: PreTrainedModel,
    batches: Sequence[Inputs],
    score: RequestedScore | None = None,
    part: str | None = None,
    unit: Unit = "head",
) -> NativeHead:
    """Return the native head of an in-memory model in eval mode on a user's batches, of any size. A
    function as ``score`` replaces its answers; by one of ``LABELLED_METRICS`` its loss compares
    answers with labels, where there are any.
    """
    texts = InMemoryTexts.from_batches(batches, model)
    if texts.unsplit_batches:
        warnings.warn(
            f"{texts.unsplit_batches} of {len(batches)} batches have tensors of different numbers "
            "of rows, so they cannot be split into texts: each counts as one text",
            stacklevel=3,
        )
    custom = score if callable(score) else None
    native = NativeHead(model, texts, score=custom, part=part, unit=unit)
    answers = _answers_to_one_text(native)
    if "embeddings" in answers:
        check_means(model)
    labelled = texts.has_labels and score in LABELLED_METRICS
    return replace(native, loss=loss_of_answers(answers, labelled))


@torch.inference_mode()
def _answers_to_one_text(native: NativeHead) -> Answers:
    return native.answers(next(native.texts.batches(np.arange(1))))


def labels_of_texts(native: NativeHead) -> Shaped[np.ndarray, " answers"] | None:
    """Return the labels of all answers, in the order of the texts; None without labels.

    Of a head that decides on each label of a text by itself, they say whether the text has it.
    """
    texts = native.texts
    if not isinstance(texts, InMemoryTexts) or not texts.has_labels:
        return None
    labels: list[Tensor] = []
    for text in texts.texts:
        values = text["labels"].flatten().cpu()
        is_token = text["labels"].dim() == 2 and not values.is_floating_point()
        # Of tokens those count that have a label, as in the answers.
        labels.append(values[values >= 0] if is_token else values)
    values = torch.cat(labels)
    if has_many_labels(native.model.config):
        values = values.long()
    return values.numpy()


def metric_of(native: NativeHead, requested: RequestedScore | None) -> Metric:
    """Return the metric of an in-memory model; None takes the usual one.

    Raises:
        DataError: Embeddings are of too few texts.
        SpecError: The metric is not of this model and data.
    """
    if callable(requested):
        return custom_name(requested)
    answers = _answers_to_one_text(native)
    texts = len(native.texts)
    has_labels = labels_of_texts(native) is not None
    known: list[Metric]
    if "embeddings" in answers:
        if texts < LEAST_SENTENCES:
            raise DataError(f"{texts} texts are measured, expected {LEAST_SENTENCES} or more")
        known = ["cosine", "similarities"]
        known += [f"nearest_{count}" for count in (10, 1) if texts > 2 * count]
    elif "log_probabilities" in answers:
        known = [LOSS, "agreement"]
    elif "numbers" in answers:
        known = ["spearman"] if has_labels else []
    else:
        known = ["agreement", *(["accuracy", LOSS] if "logits" in answers and has_labels else [])]
    metric = requested or next(iter(known), "")
    if metric not in known:
        choices = f"give one of {joined(known)}, or a function" if known else "give a function"
        if metric in LABELLED_METRICS and not has_labels:
            choices = (
                "it needs labels, and data has none (the column 'label' of a table, 'labels' of "
                f"batches): add them, or {choices}"
            )
        raise SpecError(f"score: '{metric}' is not of this model and data: {choices}")
    return metric
