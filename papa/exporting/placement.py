"""From ordinary right-padded inputs to the slots that constant matrices were made for, and back.

A tokenizer writes ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` without gaps; an exported encoder
must find every token in its slot (``papa.corpora.layout``), run there, and hand the hidden states
back at the tokens' positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.batches import MicroBatch, OrdinaryBatch
from papa.corpora.layout import arrange_one, arrange_pair, pair_capacity, text_capacity
from papa.corpora.ragged import PackedTokens, Ragged
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import Framing, SpecialTokens
from papa.errors import DataError
from papa.spec import LayoutSpec, TaskKind

Mask = Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"]


@dataclass(frozen=True)
class InputLayout:
    """Where tokens of ordinary inputs belong.

    Attributes:
        texts: 1 or 2 texts per input.
        slots: S; None where tokens stay in their places, as constants by distance have it.
        longest: the most text tokens of each text; without slots of all texts together.
        segment_ids: whether segment ids follow their tokens into the slots or stay where the
            tokenizer put them.
        framing: how the tokenizer frames the texts.
        positions: whether a token's absolute position is its slot, or its number in its input, as
            in the model's ordinary use.
    """

    texts: Literal[1, 2]
    slots: int | None
    longest: tuple[int, ...]
    segment_ids: Literal["follow", "stay"]
    framing: Framing
    positions: Literal["slots", "tokens"] = "slots"

    @classmethod
    def of(
        cls, kind: TaskKind, slots: int, layout: LayoutSpec, special_tokens: SpecialTokens
    ) -> InputLayout:
        """The layout that a study gives a task's inputs."""
        pair = kind == "pair"
        return cls(
            texts=2 if pair else 1,
            slots=slots,
            longest=pair_capacity(special_tokens, slots)
            if pair
            else (text_capacity(layout, kind, slots),),
            segment_ids=layout.segment_ids,
            framing=Framing(
                **{field.name: getattr(special_tokens, field.name) for field in fields(Framing)}
            ),
        )

    @classmethod
    def in_place(cls, kind: TaskKind, positions: int, special_tokens: SpecialTokens) -> InputLayout:
        """Tokens stay where the tokenizer puts them, as many as the encoder has positions for."""
        placed = cls.of(kind, positions, LayoutSpec(), special_tokens)
        between = special_tokens.between if placed.texts == 2 else 0
        return replace(placed, slots=None, longest=(positions - 2 - between,))

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> InputLayout:
        """The layout that ``written`` gave."""
        values = {**document, **{name: tuple(document[name]) for name in ("longest", "segments")}}
        framing = Framing(**{field.name: values.pop(field.name) for field in fields(Framing)})
        return cls(**values, framing=framing)

    def written(self) -> dict[str, Any]:
        """The layout as JSON: its own fields, then those of the framing."""
        values = asdict(self)
        values |= values.pop("framing")
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @property
    def longest_input(self) -> int:
        """The most tokens of an input, special ones included."""
        return sum(self.longest) + 2 + (self.framing.between if self.texts == 2 else 0)

    def batch(self, rows: Int[np.ndarray, " batch"], tokens: PackedTokens) -> MicroBatch:
        """The batch of these tokens, which ``place`` gives."""
        kind = OrdinaryBatch if self.positions == "tokens" else MicroBatch
        return kind.of(rows, tokens)

    def place(
        self,
        input_ids: Int[Tensor, "..."],
        attention_mask: Mask | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> PackedTokens:
        """The tokens of right-padded inputs on the CPU in their slots, as the corpora arrange the
        same texts; without segment ids those that the tokenizer of the study gives.
        """
        if input_ids.ndim != 2 or input_ids.shape[0] == 0:
            raise DataError(
                f"input_ids have the shape {list(input_ids.shape)}, expected [batch, tokens] with "
                "one input or more: call the tokenizer with a list of texts, padding=True and "
                "return_tensors='pt'"
            )
        real = (
            torch.ones_like(input_ids, dtype=torch.bool)
            if attention_mask is None
            else attention_mask.bool()
        )
        lengths = real.sum(dim=1)
        self._check_framing(input_ids, real, lengths)
        positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        inside = (positions > 0) & (positions < lengths[:, None] - 1)
        separators = inside & (input_ids == self.framing.sep)
        if self.slots is None:
            return self._in_place(input_ids, token_type_ids, real, separators)
        if self.texts == 1:
            self._check_one(separators, lengths)
            placed = arrange_one(_ragged(input_ids, inside), self.framing, self.slots)
        else:
            first_lengths = self._first_lengths(separators, positions, lengths)[:, None]
            first = _ragged(input_ids, inside & (positions <= first_lengths))
            second = _ragged(input_ids, inside & (positions > first_lengths) & ~separators)
            placed = arrange_pair(first, second, self.framing, self.segment_ids, self.slots)
        if token_type_ids is None:
            return placed
        segments, inputs = (
            (token_type_ids * real).numpy(),
            np.repeat(np.arange(len(lengths)), placed.lengths),
        )
        if self.segment_ids == "follow" or self.texts == 1:
            return replace(placed, token_type_ids=segments[real.numpy()])
        # A token takes the segment that the tokenizer gave to the position whose number its slot
        # has.
        width = segments.shape[1]
        at_slots = segments[inputs, np.minimum(placed.slot_ids, width - 1)]
        return replace(placed, token_type_ids=np.where(placed.slot_ids < width, at_slots, 0))

    def _in_place(
        self, input_ids: Tensor, token_type_ids: Tensor | None, real: Tensor, separators: Tensor
    ) -> PackedTokens:
        lengths = real.sum(dim=1)
        if (row := _first(lengths[:, None] > self.longest_input)) is not None:
            raise DataError(
                f"input {row} has {int(lengths[row])} tokens, but the encoder has positions for "
                f"{self.longest_input}: tokenise with truncation=True, "
                f"max_length={self.longest_input}"
            )
        if token_type_ids is None:
            first, between, second = self.framing.segments
            before = separators.cumsum(dim=1) - separators.int()
            token_type_ids = torch.where(separators, between, first)
            if self.texts == 2:
                token_type_ids[before >= self.framing.between] = second
        positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        return PackedTokens(
            input_ids=input_ids[real].int().numpy(),
            slot_ids=positions[real].int().numpy(),
            token_type_ids=token_type_ids[real].to(torch.int8).numpy(),
            lengths=lengths.numpy(),
            first_lengths=lengths.numpy(),
        )

    def _check_framing(self, input_ids: Tensor, real: Tensor, lengths: Tensor) -> None:
        if (row := _first(real[:, 1:] & ~real[:, :-1])) is not None or (
            row := _first(lengths[:, None] < 2)
        ) is not None:
            raise DataError(
                f"input {row} has padding before or between its tokens, or no token: pad on the "
                "right (tokenizer.padding_side = 'right') and keep the special tokens"
            )
        cls, sep = self.framing.cls, self.framing.sep
        ends = input_ids.gather(1, lengths[:, None] - 1)
        if (row := _first((input_ids[:, :1] != cls) | (ends != sep))) is not None:
            raise DataError(
                f"input {row} does not start with [CLS] (id {cls}) and end with [SEP] (id {sep}): "
                "use the exported folder's own tokenizer, with its special tokens"
            )

    def _check_one(self, separators: Tensor, lengths: Tensor) -> None:
        if (row := _first(separators)) is not None:
            raise DataError(
                f"input {row} has a separator inside, but this encoder was exported for one text "
                "per input: give one text (split_special_tokens=True where it spells a "
                "separator), or export from a task on two texts"
            )
        if (row := _first(lengths[:, None] - 2 > self.longest[0])) is not None:
            raise DataError(
                f"input {row} has {int(lengths[row])} tokens, but the constant heads were made for "
                f"{self.slots} slots, which hold {self.longest_input}: tokenise with "
                f"truncation=True, max_length={self.longest_input}"
            )

    def _first_lengths(self, separators: Tensor, positions: Tensor, lengths: Tensor) -> Tensor:
        counts = separators.sum(dim=1)
        first = torch.where(separators, positions, positions.shape[1]).amin(dim=1)
        closing = torch.where(separators, positions, -1).amax(dim=1)
        wrong = (counts != self.framing.between) | (closing - first != self.framing.between - 1)
        if (row := _first(wrong[:, None])) is not None:
            raise DataError(
                f"input {row} has {int(counts[row])} separators between [CLS] and its end, but "
                f"this encoder was exported for two texts per input with {self.framing.between} "
                "between them: give tokenizer(first, second), with split_special_tokens=True "
                "where a text spells a separator"
            )
        first_lengths = first - 1
        for name, text_lengths, most in (
            ("first", first_lengths, self.longest[0]),
            ("second", lengths - first_lengths - self.framing.between - 2, self.longest[1]),
        ):
            if (row := _first(text_lengths[:, None] > most)) is not None:
                raise DataError(
                    f"input {row} has {int(text_lengths[row])} tokens in its {name} text, but the "
                    f"constant heads were made for {self.slots} slots, which hold {most} of it: "
                    f"shorten the {name} text to {most} tokens"
                )
        return first_lengths


def _first(wrong: Bool[Tensor, "batch n"]) -> int | None:
    """The first row with any True; None where there is none."""
    rows = wrong.any(dim=1).nonzero()
    return int(rows[0]) if len(rows) else None


def _ragged(input_ids: Int[Tensor, "batch tokens"], chosen: Bool[Tensor, "batch tokens"]) -> Ragged:
    """The chosen token ids of every input."""
    return Ragged(input_ids[chosen].int().numpy(), chosen.sum(dim=1).numpy())


def write_back(
    states: Float[Tensor, "tokens width"],
    batch: MicroBatch,
    padded: Float[Tensor, "inputs longest width"],
) -> None:
    """Write the states of a batch's tokens to their positions in right-padded inputs, in place."""
    padded[batch.rows[batch.inputs_of_tokens], batch.positions_in_input] = states


def spread_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the rows (or all, where there are fewer) evenly spread, in their order."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def reproducible_rows(split: TokenisedSplit, layout: InputLayout) -> np.ndarray:
    """The rows that an exported encoder meets as the corpus has them.

    Under segment_ids 'stay' a corpus gives a pair that was cut the segments of the uncut one, which
    its tokens no longer tell; so pairs with a text that fills its slots, and may have been cut, are
    left out.
    """
    if layout.texts == 1 or layout.segment_ids == "follow":
        return split.rows
    second_lengths = split.lengths - split.first_lengths - layout.framing.between - 2
    return split.rows[
        (split.first_lengths < layout.longest[0]) & (second_lengths < layout.longest[1])
    ]


def ordinary_inputs(
    split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> dict[str, Tensor]:
    """The rows as input_ids, attention_mask and, where the encoder's tokenizer gives any,
    token_type_ids.
    """
    tokens, framing = split.tokens(rows), layout.framing
    mask = torch.arange(int(tokens.lengths.max()))[None] < torch.from_numpy(tokens.lengths)[:, None]
    input_ids = torch.full(mask.shape, framing.pad, dtype=torch.int64)
    input_ids[mask] = torch.from_numpy(tokens.input_ids).long()
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    if any(framing.segments):
        # Not the corpus's own: under segment_ids 'stay' those have moved already.
        segments = replace(layout, segment_ids="follow").place(**inputs).token_type_ids
        inputs["token_type_ids"] = torch.zeros_like(input_ids)
        inputs["token_type_ids"][mask] = torch.from_numpy(segments).long()
    return inputs
