"""A model with its own head: loaded, checked against a task, and run on its ordinary, padded
inputs, as its users call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.attention.interface import attention_modules
from papa.corpora.batches import rows_of_like_length
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens, special_tokens_for
from papa.encoders.files import read_configuration_file
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.encoders.weights import load_model
from papa.errors import DataError, EncoderError, joined
from papa.scores.fidelity import LEAST_SENTENCES
from papa.spec import TaskSpec
from papa.spec.task import EMBEDDING_METRICS

MOST_SENTENCES = 2_000
"""Whose similarities are ranked, pair by pair."""
_BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}
_CLASSES, _TAGS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"


def own_class(task: TaskSpec, reference: EncoderReference) -> str:
    """The class of transformers that loads a model with the head that the task asks."""
    if task.of_embeddings:
        if reference.embeds_by:
            raise EncoderError(
                f"'{reference.name}': {reference.embeds_by}, and PAPA measures means over tokens: "
                "measure it in your own loop, with papa.ablated"
            )
        return "AutoModel"
    if task.kind == "mlm":
        return "AutoModelForMaskedLM"
    if task.kind == "causal":
        return "AutoModelForCausalLM"
    if task.kind == "words":
        return _TAGS
    what = f"encoder '{reference.name}'"
    named = read_configuration_file(Path(reference.folder), what)[0].get("architectures") or [
        "nothing"
    ]
    if task.columns.label is None and str(named[0]).endswith("ForTokenClassification"):
        return _TAGS
    if task.columns.label is None and not str(named[0]).endswith("ForSequenceClassification"):
        raise EncoderError(
            f"{what} has no head that gives classes ({named[0]}): measure it by nearest_10, or "
            "with kind: mlm"
        )
    return _CLASSES


@lru_cache(maxsize=1)
def load_own(reference: EncoderReference, head: str, device: str = "cpu") -> PreTrainedModel:
    """The model with its own head, in float32 and in eval mode; a process keeps the last one."""
    model = load_model(reference, head=head)
    attention_modules(model)
    return cast("PreTrainedModel", model.eval().to(device))


def opened_own(
    task: TaskSpec, reference: EncoderReference, device: str = "cpu"
) -> tuple[PreTrainedModel, SpecialTokens]:
    """The model that answers a task, and the special tokens of its texts."""
    tokens = special_tokens_for(task.kind, load_tokenizer(reference))
    model = load_own(reference, own_class(task, reference), device)
    if getattr(model.config, "type_vocab_size", 2) < 2:
        tokens = replace(tokens, segments=(0, 0, 0))
    return model, tokens


def check_own(
    task: TaskSpec, reference: EncoderReference, names: Sequence[str] | None, rows: int | None
) -> str:
    """Refuse a task that a model's own head cannot serve; which of its classes are the task's."""
    if not reference.folder:
        raise EncoderError(
            f"the encoder {reference.name} is held in memory, and its own head is read from its "
            "files: save it and load it by its folder"
        )
    model = load_own(reference, own_class(task, reference))
    told = classes_told(names, class_names(model), task)
    if rows is not None:
        check_sentences(task, rows)
    classes = getattr(model.config, "num_labels", 2)
    if (
        task.kind in ("text", "pair")
        and not task.of_embeddings
        and (classes == 1) != task.regression
    ):
        gives, fits = (
            ("one number", "spearman")
            if classes == 1
            else (f"{classes} classes", "accuracy or agreement")
        )
        raise EncoderError(
            f"the head of '{reference.name}' gives {gives}, and the metric is {task.metric}: set "
            f"metric: {fits}"
        )
    return told


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


def class_names(model: PreTrainedModel) -> tuple[str, ...]:
    """The names of the classes that the model's head gives."""
    return tuple(str(name) for _, name in sorted((model.config.id2label or {}).items()))


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


def padded_batches(
    split: TokenisedSplit, special_tokens: SpecialTokens, device: torch.device
) -> Iterator[tuple[np.ndarray, Padded]]:
    """Batches of a split's rows of like length, with the rows' places in the split."""
    for rows in rows_of_like_length(split.first_lengths, split.lengths, _BATCH_TOKENS[device.type]):
        yield rows, Padded.of(split, split.rows[rows], special_tokens, device)


@dataclass(frozen=True)
class Padded:
    """Rows as a model's users give them, padded on the right: slots are 0 there; labels are of
    tokens, None where rows have them.
    """

    inputs: Mapping[str, Tensor]
    mask: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    labels: Int[Tensor, "batch tokens"] | None

    @classmethod
    def of(
        cls,
        split: TokenisedSplit,
        rows: np.ndarray,
        special_tokens: SpecialTokens,
        device: torch.device,
    ) -> Padded:
        tokens = split.tokens(rows)
        mask = (
            torch.arange(int(tokens.lengths.max()))[None]
            < torch.from_numpy(tokens.lengths)[:, None]
        )

        def padded(values: np.ndarray, fill: int) -> Tensor:
            full = torch.full(mask.shape, fill, dtype=torch.int64)
            full[mask] = torch.from_numpy(values.astype(np.int64))
            return full.to(device)

        inputs = {
            "input_ids": padded(tokens.input_ids, special_tokens.pad),
            "attention_mask": mask.long().to(device),
        }
        if any(special_tokens.segments):
            inputs["token_type_ids"] = padded(tokens.token_type_ids, 0)
        labels = padded(split.labels_of(rows), IGNORED) if split.label_per_token else None
        return cls(inputs, mask.to(device), padded(tokens.slot_ids, 0), labels)


def answers_of(model: nn.Module, batch: Padded, embeddings: bool) -> dict[str, Tensor]:
    """What a model answers to a batch, as ``Answers`` has it; gradients pass."""
    outputs = model(**batch.inputs)
    ones = torch.ones(len(batch.mask), dtype=torch.int64)
    if embeddings:
        states, real = outputs.last_hidden_state.float(), batch.mask[:, :, None]
        return {"embeddings": (states * real).sum(1) / real.sum(1), "lengths": ones}
    logits = outputs.logits.float()
    if logits.dim() == 2:
        return {"logits": logits, "lengths": ones}
    chosen = batch.mask if batch.labels is None else batch.labels != IGNORED
    logits, lengths = logits[chosen], chosen.sum(1)
    if cast(Any, model).get_output_embeddings() is None or batch.labels is None:
        return {"logits": logits, "lengths": lengths}
    likelihoods: Float[Tensor, "answers words"] = logits.log_softmax(-1)
    true = likelihoods.gather(1, batch.labels[chosen][:, None])[:, 0]
    return {"top": logits.argmax(1), "log_probabilities": true, "lengths": lengths}
