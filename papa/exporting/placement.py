"""From ordinary right-padded inputs to the slots that constant matrices were made for, and back.

A tokenizer writes ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` without gaps; an exported encoder must find every
token in its slot (``papa.corpora.layout``), run there, and hand the hidden states back where the tokens stood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.corpora.batches import MicroBatch
from papa.corpora.layout import pair_capacity, text_capacity
from papa.corpora.tokens import SpecialTokens
from papa.errors import DataError
from papa.spec import LayoutSpec, TaskKind

Mask = Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"]


@dataclass(frozen=True)
class InputLayout:
    """Where tokens of ordinary inputs belong.

    Attributes:
        texts: 1 or 2 texts an input.
        slots: S.
        longest: the most text tokens of each text.
        segment_ids: whether segment ids follow their tokens into the slots or stay where the tokenizer put them.
        cls, sep, pad: token ids.
        between: separators between two texts.
        segments: segment ids of the first text, of the separators between, and of the second text.
    """

    texts: Literal[1, 2]
    slots: int
    longest: tuple[int, ...]
    segment_ids: Literal["follow", "stay"]
    cls: int
    sep: int
    pad: int
    between: int
    segments: tuple[int, int, int]

    @classmethod
    def of(cls, kind: TaskKind, slots: int, layout: LayoutSpec, special_tokens: SpecialTokens) -> InputLayout:
        """The layout that a study gives a task's inputs."""
        pair = kind == "pair"
        return cls(
            texts=2 if pair else 1,
            slots=slots,
            longest=pair_capacity(special_tokens, slots) if pair else (text_capacity(layout, kind, slots),),
            segment_ids=layout.segment_ids,
            cls=special_tokens.cls,
            sep=special_tokens.sep,
            pad=special_tokens.pad,
            between=special_tokens.between,
            segments=special_tokens.segments,
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> InputLayout:
        """The layout that ``written`` gave."""
        lists = {name: tuple(document[name]) for name in ("longest", "segments")}
        return cls(**{**document, **lists})

    def written(self) -> dict[str, Any]:
        """The layout as JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def longest_input(self) -> int:
        """The most tokens of an input, special ones included."""
        return sum(self.longest) + 2 + (self.between if self.texts == 2 else 0)

    def place(
        self,
        input_ids: Int[Tensor, "..."],
        attention_mask: Mask | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> PlacedInputs:
        """Find every token's slot.

        Args:
            input_ids: [batch, tokens] as the tokenizer gives them, padded on the right.
            attention_mask: 1 where there is a token; None: everywhere.
            token_type_ids: segment ids; None: those that the tokenizer of the study gives.

        Raises:
            DataError: an input is padded on the left, is not framed by [CLS] and [SEP], holds another number of
                texts, or has a text that is too long; the message names the input.
        """
        if input_ids.ndim != 2 or input_ids.shape[0] == 0:
            raise DataError(
                f"input_ids have the shape {list(input_ids.shape)}, expected [batch, tokens] with one input or more: "
                "call the tokenizer with a list of texts, padding=True and return_tensors='pt'"
            )
        real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        lengths = real.sum(dim=1)
        place = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        last = lengths[:, None] - 1
        self._check_frame(input_ids, real, lengths)
        separators = (input_ids == self.sep) & real & (place > 0) & (place < last)
        if self.texts == 1:
            self._check_one(separators, lengths)
            first_lengths = lengths - 2
            slots = place.clone()
        else:
            first_lengths = self._first_lengths(separators, place, lengths)
            second = place - first_lengths[:, None] - 1
            slots = torch.where(second < 0, place, self.slots // 2 + second)
        slots = torch.where(place == last, self.slots - 1, slots).where(real, torch.zeros_like(slots))
        return PlacedInputs(
            input_ids=input_ids,
            real=real,
            slots=slots,
            token_type_ids=self._segments(token_type_ids, place, slots, first_lengths, last, real),
            lengths=lengths,
            first_lengths=first_lengths,
        )

    def _check_frame(self, input_ids: Tensor, real: Tensor, lengths: Tensor) -> None:
        if (row := _first(real[:, 1:] & ~real[:, :-1])) is not None or (
            row := _first(lengths[:, None] < 2)
        ) is not None:
            raise DataError(
                f"input {row} has padding before or between its tokens, or no token: pad on the right "
                "(tokenizer.padding_side = 'right') and keep the special tokens"
            )
        ends = input_ids.gather(1, lengths[:, None] - 1)
        if (row := _first((input_ids[:, :1] != self.cls) | (ends != self.sep))) is not None:
            raise DataError(
                f"input {row} does not start with [CLS] (id {self.cls}) and end with [SEP] (id {self.sep}): use the "
                "exported folder's own tokenizer, with its special tokens"
            )

    def _check_one(self, separators: Tensor, lengths: Tensor) -> None:
        if (row := _first(separators)) is not None:
            raise DataError(
                f"input {row} has a separator inside, but this encoder was exported for one text an input: give one "
                "text (split_special_tokens=True where it spells a separator), or export from a task on two texts"
            )
        if (row := _first(lengths[:, None] - 2 > self.longest[0])) is not None:
            raise DataError(
                f"input {row} has {int(lengths[row])} tokens, but the constant heads were made for {self.slots} slots, "
                f"which hold {self.longest_input}: tokenise with truncation=True, max_length={self.longest_input}"
            )

    def _first_lengths(self, separators: Tensor, place: Tensor, lengths: Tensor) -> Tensor:
        counts = separators.sum(dim=1)
        first = torch.where(separators, place, place.shape[1]).amin(dim=1)
        closing = torch.where(separators, place, -1).amax(dim=1)
        wrong = (counts != self.between) | (closing - first != self.between - 1)
        if (row := _first(wrong[:, None])) is not None:
            raise DataError(
                f"input {row} has {int(counts[row])} separators between [CLS] and its end, but this encoder was "
                f"exported for two texts an input with {self.between} between them: give tokenizer(first, second), "
                "with split_special_tokens=True where a text spells a separator"
            )
        first_lengths = first - 1
        for name, found, most in (
            ("first", first_lengths, self.longest[0]),
            ("second", lengths - first_lengths - self.between - 2, self.longest[1]),
        ):
            if (row := _first(found[:, None] > most)) is not None:
                raise DataError(
                    f"input {row} has {int(found[row])} tokens in its {name} text, but the constant heads were made "
                    f"for {self.slots} slots, which hold {most} of it: shorten the {name} text to {most} tokens"
                )
        return first_lengths

    def _segments(
        self, given: Tensor | None, place: Tensor, slots: Tensor, first_lengths: Tensor, last: Tensor, real: Tensor
    ) -> Tensor:
        if given is None:
            start_of_second = first_lengths[:, None] + self.between + 1
            first, separators, second = (torch.full_like(place, value) for value in self.segments)
            given = torch.where(place >= start_of_second, second, separators)
            given = torch.where(place <= first_lengths[:, None], first, given) if self.texts == 2 else first
        given = given * real
        if self.segment_ids == "stay" and self.texts == 2:
            # A token takes the segment that the tokenizer gave to the place whose number its slot has.
            inside = slots < given.shape[1]
            given = given.gather(1, slots.where(inside, torch.zeros_like(slots))) * inside * real
        return given


def _first(wrong: Tensor) -> int | None:
    """The first row with any True; None where there is none."""
    rows = wrong.any(dim=1).nonzero()
    return int(rows[0]) if len(rows) else None


def groups_of_like_length(placed: PlacedInputs, batch_tokens: int) -> Sequence[Tensor]:
    """Row numbers in groups of like length, each within ``batch_tokens`` padded tokens: less padding, same numbers."""
    first, rest = placed.first_lengths.tolist(), (placed.lengths - placed.first_lengths).tolist()
    order = sorted(range(len(first)), key=lambda row: (first[row], rest[row], row))
    groups: list[list[int]] = [[]]
    widest = (0, 0)
    for row in order:
        wider = (max(widest[0], first[row]), max(widest[1], rest[row]))
        if groups[-1] and (len(groups[-1]) + 1) * sum(wider) > batch_tokens:
            groups.append([])
            wider = (first[row], rest[row])
        groups[-1].append(row)
        widest = wider
    return [torch.tensor(group) for group in groups]


@dataclass(frozen=True)
class PlacedInputs:
    """Right-padded inputs with a slot for every token.

    Attributes:
        input_ids, token_type_ids: as given.
        real: where there is a token.
        slots: each token's slot; 0 where there is none.
        lengths: tokens of each input.
        first_lengths: text tokens of its first (or only) text.
    """

    input_ids: Int[Tensor, "batch tokens"]
    real: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    token_type_ids: Int[Tensor, "batch tokens"]
    lengths: Int[Tensor, " batch"]
    first_lengths: Int[Tensor, " batch"]

    def compact(self, rows: Int[Tensor, " rows"]) -> MicroBatch:
        """Some of the inputs as a batch without padding."""
        real = self.real[rows]
        return MicroBatch.of_tokens(
            rows=rows,
            lengths=self.lengths[rows],
            token_slots=self.slots[rows][real],
            input_ids=self.input_ids[rows][real],
            token_type_ids=self.token_type_ids[rows][real],
        )

    def restore(
        self,
        rows: Int[Tensor, " rows"],
        states: Float[Tensor, "real width"],
        into: Float[Tensor, "batch tokens width"],
    ) -> None:
        """Write the states of the tokens of ``compact(rows)`` into ``into``, where they came from."""
        inputs, places = (index.to(states.device) for index in self.real[rows].nonzero(as_tuple=True))
        into[rows.to(states.device)[inputs], places] = states
