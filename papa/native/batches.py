"""What a native head is called with: texts of a study's split, or those of a model in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from papa.heads.masks import real_tokens
from papa.probes.training import Rows
from papa.text.batches import rows_of_like_length
from papa.text.corpus import TokenisedSplit
from papa.text.tokens import IGNORED, SpecialTokens

Inputs: TypeAlias = Mapping[str, Any]
"""The keyword arguments of a model."""
BATCH_TEXTS = 16
"""The most texts of an in-memory model in one batch."""
BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}
"""The usual number of tokens of a study's texts in one batch, by the type of the device."""
MOST_TOKENS = 16_384
"""The most tokens of an in-memory model's texts in one batch, if there are two texts or more."""


@dataclass(frozen=True)
class Batch:
    """Texts that a model is called with at once.

    Attributes:
        inputs: The model's keyword arguments.
        rows: The number of each text.
        labels: Of each text its class, number, or vector of labels; or of each token what is right
            there, -100 where nothing counts. None: what ``inputs`` say.
    """

    inputs: Inputs
    rows: Rows
    labels: Shaped[Tensor, "texts ..."] | None = None


@dataclass(frozen=True)
class SplitTexts:
    """The texts of a study's split, padded on the right: two texts of a pair follow each other, as
    the model's own tokenizer puts them, whatever their slots in the layout.

    Attributes:
        split: The tokenised split.
        special_tokens: Of the model's tokenizer.
        device: The model's.
        classes: The number that the head has for each class of the task; None where labels are no
            classes, or not read.
        batch_tokens: About how many tokens a batch has at most; None takes ``BATCH_TOKENS``.
    """

    split: TokenisedSplit
    special_tokens: SpecialTokens
    device: torch.device
    classes: Int[Tensor, " classes"] | None = None
    batch_tokens: int | None = None

    def __len__(self) -> int:
        return len(self.split)

    def batches(self, rows: Rows | None = None, tokens: int | None = None) -> Iterator[Batch]:
        """Yield texts of like length together.

        Args:
            rows: Numbers of the texts; None takes all.
            tokens: About how many tokens a batch has at most; None takes the usual number.
        """
        rows = self.split.rows if rows is None else rows
        index = self.split.index_of(rows)
        lengths = self.split.first_lengths[index], self.split.lengths[index]
        most = tokens or self.batch_tokens or BATCH_TOKENS[self.device.type]
        for group in rows_of_like_length(*lengths, most):
            yield self._padded(rows[group])

    def _padded(self, rows: Rows) -> Batch:
        tokens = self.split.tokens(rows)

        def padded(values: np.ndarray, fill: int) -> Int[Tensor, "texts tokens"]:
            by_row = torch.from_numpy(values.astype(np.int64)).split(tokens.lengths.tolist())
            return pad_sequence(by_row, batch_first=True, padding_value=fill).to(self.device)

        inputs = {
            "input_ids": padded(tokens.input_ids, self.special_tokens.pad),
            "attention_mask": padded(np.ones_like(tokens.input_ids), 0),
        }
        if any(self.special_tokens.segments):
            inputs["token_type_ids"] = padded(tokens.token_type_ids, 0)
        values = self.split.labels_of(rows)
        if self.split.label_per_token:
            labels = padded(values, IGNORED)
        else:
            labels = torch.from_numpy(values).to(self.device)
        if self.classes is not None:
            labels = self.classes[labels.clamp(min=0)].where(labels != IGNORED, IGNORED)
        return Batch(inputs, rows, labels)


@dataclass(frozen=True)
class InMemoryTexts:
    """The texts of an in-memory model, each as inputs without padding, whatever batches the user
    passed.

    Attributes:
        padding: The token ids of padding, by the name of an input; 0 for others.
        has_labels: Whether the input ``labels`` is of classes or numbers, not of words.
        unsplit_batches: How many of the texts are batches that cannot be split.
    """

    texts: Sequence[Inputs]
    padding: Mapping[str, int]
    has_labels: bool = False
    unsplit_batches: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """How many tokens, or other entries, each text has."""
        return np.array([_length_of(text) for text in self.texts])

    @classmethod
    def from_batches(cls, batches: Sequence[Inputs], model: PreTrainedModel) -> InMemoryTexts:
        """Split a user's batches into texts."""
        is_encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
        # Of an encoder-decoder the mask says nothing of the decoder's tokens.
        texts, unsplit_batches = _single_texts(batches, is_trimmed=not is_encoder_decoder)
        classes = model.get_output_embeddings() is None
        has_labels = classes and all(isinstance(text.get("labels"), Tensor) for text in texts)
        padding = {"input_ids": getattr(model.config, "pad_token_id", None) or 0, "labels": IGNORED}
        return cls(texts, padding, has_labels, unsplit_batches)

    def batches(self, rows: Rows | None = None, tokens: int | None = None) -> Iterator[Batch]:
        """Yield texts of like length that one batch can hold; see ``SplitTexts.batches``."""
        rows = np.arange(len(self)) if rows is None else rows
        texts = [self.texts[row] for row in rows.tolist()]
        lengths = self.lengths[rows]
        if tokens is None:
            groups = [*_usual_groups(lengths, is_text=all("input_ids" in text for text in texts))]
        else:
            groups = [*rows_of_like_length(0 * lengths, lengths, tokens)]
        for group in groups:
            for indices in _alike_texts([texts[index] for index in group.tolist()]):
                members = group[indices]
                inputs = self.joined([texts[index] for index in members.tolist()])
                labels = inputs["labels"] if self.has_labels else None
                yield Batch(inputs, rows[members], labels)

    def joined(self, texts: Sequence[Inputs]) -> Inputs:
        """Join alike texts, padded on the right to the longest."""
        if len(texts) == 1:
            return texts[0]
        return {
            name: _below_each_other([text[name] for text in texts], self.padding.get(name, 0))
            for name in texts[0]
        }


def _usual_groups(lengths: Int[np.ndarray, " texts"], is_text: bool) -> Iterator[Rows]:
    """Yield the indices of texts of like length, up to ``BATCH_TEXTS`` together.

    Of text they have ``MOST_TOKENS`` with padding at most, unless it is a single one: a language
    model answers with a number for each token and each entry of its vocabulary.
    """
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), BATCH_TEXTS):
        group = order[start : start + BATCH_TEXTS]
        size = BATCH_TEXTS
        if is_text:
            longest = max(int(lengths[group].max()), 1)
            size = max(MOST_TOKENS // longest, 1)
        yield from np.split(group, range(size, len(group), size))


Texts: TypeAlias = SplitTexts | InMemoryTexts
"""The texts of a native head, in batches."""


def _length_of(text: Inputs) -> int:
    real = real_tokens(text.get("attention_mask"))
    if real is not None:
        return int(real.sum())
    first = next(value for value in text.values() if isinstance(value, Tensor) and value.dim())
    return first[0].numel() if len(first) == 1 else first.numel()


def _single_texts(batches: Sequence[Inputs], *, is_trimmed: bool) -> tuple[list[Inputs], int]:
    """Split batches into inputs of one text each, in their order, without padding if
    ``is_trimmed``; return also how many batches cannot be split.

    Padding is what a mask of [texts, tokens] hides at either end of a text. A batch that holds
    tensors without a row for each text stays whole: several texts may be packed in one row, or
    share their positions.
    """
    texts: list[Inputs] = []
    unsplit = 0
    for batch in batches:
        tensors = [value for value in batch.values() if isinstance(value, Tensor) and value.dim()]
        sizes = {len(tensor) for tensor in tensors}
        if len(sizes) != 1:
            texts.append(batch)
            unsplit += 1
            continue
        for row in range(sizes.pop()):
            text = {
                name: value[row : row + 1] if isinstance(value, Tensor) and value.dim() else value
                for name, value in batch.items()
            }
            texts.append(_without_padding(text) if is_trimmed else text)
    return texts, unsplit


def _without_padding(text: Inputs) -> Inputs:
    if not _is_padded_by_column(text):
        return text
    real = text["attention_mask"][0].nonzero().flatten().tolist()
    if not real:
        return text
    return {
        name: value[:, real[0] : real[-1] + 1] if _has_columns(name, value) else value
        for name, value in text.items()
    }


def _has_columns(name: str, value: object) -> bool:
    """Return whether a value has an entry for each token along axis 1. A vector of labels, as of a
    head that answers each by itself, has none, however many labels there are.
    """
    if not isinstance(value, Tensor) or value.dim() < 2:
        return False
    return not (name == "labels" and value.is_floating_point())


def _is_padded_by_column(text: Inputs) -> bool:
    """Return whether all that a text has for each token lies along axis 1, and a mask says what
    counts.
    """
    mask = text.get("attention_mask")
    has_decoder = any(name.startswith("decoder_") for name in text)
    if has_decoder or not isinstance(mask, Tensor) or mask.dim() != 2:
        return False
    widths = {value.shape[1] for name, value in text.items() if _has_columns(name, value)}
    return widths == {mask.shape[1]}


def _alike_texts(texts: Sequence[Inputs]) -> list[list[int]]:
    """Return the indices of texts that one batch can hold, for each of as few batches as that
    takes.
    """
    groups: dict[object, list[int]] = {}
    for index, text in enumerate(texts):
        tensors = {name: value for name, value in text.items() if isinstance(value, Tensor)}
        # Padded by column, texts may differ in tokens; else shapes have to be the same.
        free = 2 if _is_padded_by_column(text) else 1
        shapes = [
            (name, tensor.dtype, tensor.dim(), tensor.shape[free:])
            for name, tensor in tensors.items()
        ]
        settings = [(name, repr(value)) for name, value in text.items() if name not in tensors]
        is_single = {len(tensor) for tensor in tensors.values() if tensor.dim()} == {1}
        groups.setdefault((free, *shapes, *settings) if is_single else index, []).append(index)
    return list(groups.values())


def _below_each_other(values: Sequence[object], padding: int) -> object:
    """Concatenate rows, padded along axis 1; what is no tensor of rows is equal in all batches."""
    tensors = [value for value in values if isinstance(value, Tensor) and value.dim()]
    if len(tensors) < len(values):
        return values[0]
    if tensors[0].dim() == 1:
        return torch.cat(tensors)
    return pad_sequence([row for tensor in tensors for row in tensor], True, padding)
