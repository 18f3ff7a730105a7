"""A model's own head: loaded, checked against a task, and run on its ordinary, padded inputs.

Constant matrices are read at the slots that the layout gives the same tokens (paper, App. A).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.errors import DataError, EncoderError, NumbersError
from papa.heads.attention_layers import attention_modules
from papa.heads.average import AttentionAverager, AttentionSums
from papa.heads.interface import routed
from papa.heads.substitutes import Substitute, rules_of
from papa.models.encoder import sum_is_finite
from papa.models.layer import Rule, See, Watching
from papa.models.native import load_native_model, native_class, native_model_without_weights
from papa.models.reference import EncoderReference, load_tokenizer
from papa.progress import Progress, ignore_progress
from papa.scores.answers import Answers, check_sentences, classes_told
from papa.scores.custom import CustomScore, checked_score
from papa.spec import TaskSpec
from papa.spec.orders import Head
from papa.text.batches import rows_of_like_length
from papa.text.corpus import TokenisedSplit
from papa.text.tokens import IGNORED, SpecialTokens, special_tokens_of

_BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}


def opened_own(
    task: TaskSpec, reference: EncoderReference, model: PreTrainedModel | None = None
) -> OwnHead:
    """The model with the head that a task asks; ``model`` where it is loaded already."""
    tokens = special_tokens_of(load_tokenizer(reference), task.kind)
    if model is None:
        model = load_native_model(reference, native_class(task, reference))
    attention_modules(model)  # Refused before anything runs.
    if getattr(model.config, "type_vocab_size", 2) < 2:
        tokens = replace(tokens, segments=(0, 0, 0))
    return OwnHead(model, tokens)


def check_own(
    task: TaskSpec, reference: EncoderReference, names: Sequence[str] | None, rows: int | None
) -> str:
    """Refuse a task that a model's own head cannot serve; which of its classes are the task's."""
    if not reference.folder:
        raise EncoderError(
            f"the encoder {reference.name} is held in memory, without its own head: give "
            "papa.measure the model itself, with tokenizer="
        )
    model = native_model_without_weights(reference, native_class(task, reference))
    attention_modules(model)  # Refused before anything runs.
    told = classes_told(names, class_names(model), task)
    if rows is not None:
        check_sentences(task, rows)
    classes = getattr(model.config, "num_labels", 2)
    of_texts = task.kind in ("text", "pair") and not task.of_embeddings
    if of_texts and has_many_labels(model.config):
        if task.columns.label is not None and task.metric != "custom":
            raise EncoderError(
                f"the head of '{reference.name}' decides on each of {classes} labels by itself "
                "(problem_type: multi_label_classification), and the task has one class for each "
                "text: leave out columns.label and set metric: agreement"
            )
    elif of_texts and classes > 1 and model.config.problem_type == "regression":
        raise EncoderError(
            f"the head of '{reference.name}' gives {classes} numbers (problem_type: regression), "
            "no classes: measure it in your own loop, with papa.ablated"
        )
    elif of_texts and (classes == 1) != task.regression:
        gives = "one number" if classes == 1 else f"{classes} classes"
        raise EncoderError(
            f"the head of '{reference.name}' gives {gives}, and the metric is {task.metric}: set "
            f"metric: {'spearman' if classes == 1 else 'accuracy or agreement'}"
        )
    return told


def class_names(model: PreTrainedModel) -> tuple[str, ...]:
    return tuple(str(name) for _, name in sorted((model.config.id2label or {}).items()))


def has_many_labels(config: Any) -> bool:
    """Whether a classifier decides on each label of a text by itself, by its sigmoid."""
    return bool(config.problem_type == "multi_label_classification")


def answers_by_label(logits: Float[Tensor, "texts labels"]) -> dict[str, Tensor]:
    """Each label of each text as an answer of two classes, without it and with it, whose softmax is
    the label's sigmoid.
    """
    by_label = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    lengths = torch.full((len(logits),), logits.shape[1])
    return {"logits": by_label.flatten(0, 1), "lengths": lengths}


class Padded(NamedTuple):
    """Rows padded on the right, where slots are 0; labels are of tokens, else None."""

    inputs: Mapping[str, Tensor]
    mask: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    labels: Int[Tensor, "batch tokens"] | None


class OwnHead(NamedTuple):
    """The model that answers a task, and the special tokens of its texts."""

    model: PreTrainedModel
    special_tokens: SpecialTokens

    def padded(self, split: TokenisedSplit, rows: np.ndarray) -> Padded:
        tokens, device = split.tokens(rows), self.model.device

        def padded(values: np.ndarray, fill: int) -> Int[Tensor, "batch tokens"]:
            by_row = torch.from_numpy(values.astype(np.int64)).split(tokens.lengths.tolist())
            full = nn.utils.rnn.pad_sequence(by_row, batch_first=True, padding_value=fill)
            return full.to(device)

        mask = padded(np.ones_like(tokens.input_ids), 0)
        ids = padded(tokens.input_ids, self.special_tokens.pad)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if any(self.special_tokens.segments):
            inputs["token_type_ids"] = padded(tokens.token_type_ids, 0)
        labels = padded(split.labels_of(rows), IGNORED) if split.label_per_token else None
        return Padded(inputs, mask.bool(), padded(tokens.slot_ids, 0), labels)

    def batches(
        self, split: TokenisedSplit, progress: Progress
    ) -> Iterator[tuple[np.ndarray, Padded]]:
        """Rows of like length together, with their places in the split."""
        tokens, done = _BATCH_TOKENS[self.model.device.type], 0
        for rows in rows_of_like_length(split.first_lengths, split.lengths, tokens):
            yield rows, self.padded(split, split.rows[rows])
            done += len(rows)
            progress(done, len(split))

    @property
    def layers(self) -> int:
        return len(attention_modules(self.model))

    def outputs(self, batch: Padded, rules: Mapping[int, Rule] | None = None) -> Any:
        """What the model puts out where its layers follow ``rules``; gradients pass."""
        if rules is None:
            return self.model(**batch.inputs)
        with routed(self.model, attention_modules(self.model), rules) as dispatch:
            dispatch.slots, dispatch.real = batch.slots, batch.mask
            return self.model(**batch.inputs)

    def answers_of(self, batch: Padded, outputs: Any) -> dict[str, Tensor]:
        """What these outputs answer, as ``Answers`` has it."""
        ones = torch.ones(len(batch.mask), dtype=torch.int64)
        if "logits" not in outputs:
            states, real = outputs.last_hidden_state, batch.mask[:, :, None]
            return {"embeddings": (states * real).sum(1) / real.sum(1), "lengths": ones}
        logits: Float[Tensor, "..."] = outputs.logits
        if logits.dim() == 2 and has_many_labels(self.model.config):
            return answers_by_label(logits)
        if logits.dim() == 2:
            return {"logits": logits, "lengths": ones}
        chosen = batch.mask if batch.labels is None else batch.labels != IGNORED
        logits, lengths = logits[chosen], chosen.sum(1)
        if self.model.get_output_embeddings() is None or batch.labels is None:
            return {"logits": logits, "lengths": lengths}
        losses = nn.functional.cross_entropy(logits, batch.labels[chosen], reduction="none")
        return {"top": logits.argmax(1), "log_probabilities": -losses, "lengths": lengths}

    @torch.inference_mode()
    def answers(
        self,
        split: TokenisedSplit,
        constants: Substitute | None = None,
        heads: Sequence[Head] = (),
        *,
        score: CustomScore | None = None,
        ids: Int[np.ndarray, " classes"] | None = None,
        progress: Progress = ignore_progress,
    ) -> Answers:
        """What the model answers on a split while ``heads`` are constant, of words for labelled
        ones; of a model without a head the mean of the last hidden states; or what a user's
        ``score`` says of a batch, whose labels are ``ids``, what the head calls the task's classes.
        """
        rules, found = None, dict[str, dict[int, Tensor]]()
        if constants is not None and heads:
            rules = rules_of(constants.to(self.model.device), heads)
        for rows, batch in self.batches(split, progress):
            outputs = self.outputs(batch, rules)
            if score is None:
                answers = self.answers_of(batch, outputs)
            else:
                labels = torch.from_numpy(split.labels_of(split.rows[rows]))
                labels = labels if batch.labels is None else batch.labels.cpu()
                if ids is not None:
                    known = torch.from_numpy(ids)[labels.clamp(min=0)]
                    labels = known.where(labels != IGNORED, IGNORED)
                inputs = {**batch.inputs, "labels": labels.to(self.model.device)}
                scores = checked_score(score(outputs, inputs)).float()
                if len(scores) != len(rows):
                    raise DataError(
                        f"score gave {len(scores)} numbers for {len(rows)} texts: give one for each"
                    )
                answers = {"score": scores, "lengths": torch.ones(len(rows)).long()}
            lengths = answers["lengths"].tolist()
            for name, values in answers.items():
                pieces = values.cpu().split([1] * len(rows) if name == "lengths" else lengths)
                found.setdefault(name, {}).update(zip(rows.tolist(), pieces, strict=True))
        return {
            name: torch.cat([own[row] for row in range(len(split))]).numpy()
            for name, own in found.items()
        }

    @torch.inference_mode()
    def observe(self, split: TokenisedSplit, see: See, progress: Progress) -> None:
        """Show every layer of a decoder's passes over a split."""
        rules = {layer: Watching(see=see, layer=layer) for layer in range(self.layers)}
        for _, batch in self.batches(split, progress):
            # Slots are positions, the same in all inputs.
            slots = torch.arange(batch.mask.shape[1], device=batch.mask.device)[None]
            self.outputs(batch._replace(slots=slots), rules)

    def average_by_position(
        self, split: TokenisedSplit, heads: int, progress: Progress
    ) -> AttentionSums:
        """Sums of a decoder's A over a split, which merge as those of encoders."""
        averager = AttentionAverager(self.layers, heads, split.slots, self.model.device)
        self.observe(split, averager.see, progress)
        if not sum_is_finite(averager.sums):
            raise NumbersError("the decoder's attention", "look at the size of its weights")
        return averager.result()
