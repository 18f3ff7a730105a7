"""An exported encoder as a dense computation: fixed steps on padded tensors, as a graph such as
ONNX can hold.

PAPA's own forward pass packs tokens, whose number depends on the inputs. Here every column of every
input is computed, and columns without a token are masked. With one text a column is a token's
position, but for [SEP], which every input has in the last column; with two texts there is a column
for each slot. Where tokens stay in their places a column is a position.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from papa.attention.constants import DistanceWeights
from papa.attention.replacement import Constants
from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.encoder import Encoder
from papa.exporting.placement import InputLayout
from papa.spec.orders import Head


@dataclass(frozen=True)
class DenseBatch(MicroBatch):
    """A batch that computes every column of every input as if it held a token; ``real`` ones do.
    Positions may be those of the model's ordinary use.
    """

    real: Bool[Tensor, "batch m"]
    ordinary: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.real.shape[0], self.real.shape[1]

    @property
    def dense(self) -> bool:
        return False

    @property
    def positions(self) -> Int[Tensor, " tokens"]:
        return self.positions_in_input if self.ordinary else self.slot_ids

    @property
    def attention_mask(self) -> Bool[Tensor, "batch m"]:
        return self.real

    def unpack_heads(
        self, states: Float[Tensor, "1 heads tokens width"]
    ) -> Float[Tensor, "batch heads m width"]:
        heads, _, width = states.shape[1:]
        return states.transpose(1, 2).reshape(*self.shape, heads, width).transpose(1, 2)

    def pack_heads(
        self, states: Float[Tensor, "batch heads m width"]
    ) -> Float[Tensor, "1 heads tokens width"]:
        heads, _, width = states.shape[1:]
        return states.transpose(1, 2).reshape(1, -1, heads, width).transpose(1, 2)

    def to(self, device: torch.device) -> DenseBatch:
        return self


class _Constant:
    """The rule of one layer: constant heads first, then the others, put back in their order."""

    def __init__(self, constants: Constants, layer: int, constant: list[int]) -> None:
        heads = constants.values.shape[1]
        dependent = [head for head in range(heads) if head not in constant]
        order = sorted(range(heads), key=[*constant, *dependent].__getitem__)
        self.constant_heads, self.order = torch.tensor(constant), torch.tensor(order)
        heads_read = self.constant_heads
        if not isinstance(constants, DistanceWeights):
            # A graph holds all of a tensor that it reads from.
            constants = constants.of(constants.values[layer : layer + 1, constant])
            layer, heads_read = 0, torch.arange(len(constant))
        self.product = partial(constants.product, layer, heads_read)
        self.dependent_heads = torch.tensor(dependent, dtype=torch.long)

    def __call__(
        self,
        own: InputDependentAttention,
        value: Float[Tensor, "batch heads m width"],
        batch: MicroBatch,
    ) -> Float[Tensor, "batch heads m width"]:
        mixed = self.product(
            value.index_select(1, self.constant_heads), batch.columns, batch.attention_mask
        )
        if self.dependent_heads.numel() == 0:
            return mixed
        dependent = own.product(value.index_select(1, self.dependent_heads))
        return torch.cat([mixed, dependent], dim=1).index_select(1, self.order)


class DenseEncoder(nn.Module):
    """The hidden states that an exported encoder gives right-padded inputs, computed densely; of
    the constants only those of ``heads`` are read.
    """

    def __init__(
        self,
        encoder: Encoder,
        constants: Constants,
        heads: tuple[Head, ...],
        layout: InputLayout,
    ) -> None:
        super().__init__()
        self.model, self.layout = encoder.model, layout
        self._encoder = encoder
        by_layer: dict[int, list[int]] = {}
        for layer, head in sorted(heads):
            by_layer.setdefault(layer, []).append(head)
        self._rules = {layer: _Constant(constants, layer, own) for layer, own in by_layer.items()}
        # Numbers that are looked up: to read past the end of a table is an error, so too long
        # inputs are refused.
        self._positions = torch.arange(layout.longest_input)
        self._slots = layout.slots or 0
        self._starts = torch.arange(layout.longest[0] + 2)
        self._second_lengths = torch.arange(layout.longest[-1] + 1)

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Inside the block the constant heads are constant, and the module may be called."""
        with self._encoder.ruled(dict(self._rules)):
            yield

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> tuple[Float[Tensor, "batch tokens width"], ...]:
        """The hidden states of all layers, the last first, 0 where there is no token."""
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        lengths = attention_mask.sum(dim=1, keepdim=True)
        lay_out = self._one if self.layout.texts == 1 else self._two
        if self.layout.slots is None:
            lay_out = self._in_place
        columns, index, real, back = lay_out(input_ids, lengths)
        rows, numbers = torch.arange(index.shape[0]), torch.arange(index.shape[1])
        batch = DenseBatch(
            rows=rows,
            columns=columns,
            column_ids=numbers.expand_as(index).reshape(-1),
            inputs_of_tokens=rows[:, None].expand_as(index).reshape(-1),
            positions_in_input=index.reshape(-1),
            input_ids=input_ids.gather(1, index).reshape(-1),
            token_type_ids=token_type_ids.gather(1, index).reshape(-1),
            real=real,
            ordinary=self.layout.positions == "tokens",
        )
        back = back[..., None]

        def in_order(states: Float[Tensor, "columns width"]) -> Float[Tensor, "batch tokens width"]:
            states = states.reshape(*batch.shape, -1)
            found = states.gather(1, back.expand(*back.shape[:2], states.shape[-1]))
            return found * attention_mask[..., None].to(found.dtype)

        return tuple(map(in_order, reversed(self._encoder.token_states(batch))))

    def _in_place(
        self, input_ids: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As of ``_one``."""
        columns = self._positions[torch.arange(input_ids.shape[1])]
        index = columns.expand_as(input_ids)
        return columns, index, index < lengths, index

    def _one(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Slots of the columns, the token in each, whether there is one, and the column of each
        token.
        """
        positions = self._positions[torch.arange(input_ids.shape[1])]
        last = positions == input_ids.shape[1] - 1
        columns = torch.where(last, self._slots - 1, positions)
        index = torch.where(last, lengths - 1, positions)
        real = last | (positions < lengths - 1)
        back = torch.where(
            positions == lengths - 1, input_ids.shape[1] - 1, positions.expand_as(input_ids)
        )
        return columns, index, real, back

    def _two(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        half, slots, tokens = self._slots // 2, self._slots, input_ids.shape[1]
        positions = torch.arange(tokens)
        separators = (input_ids == self.layout.framing.sep) & (positions > 0)
        # Where the second half begins: at the first separator.
        first = self._starts[torch.where(separators, positions, tokens).amin(dim=1, keepdim=True)]
        rest = lengths - 1 - first
        rest = (
            self._second_lengths[rest - self.layout.framing.between] + self.layout.framing.between
        )
        columns = torch.arange(slots)
        index = torch.where(columns < half, columns, columns - half + first)
        in_second = (columns >= half) & (columns - half < rest)
        real = ((columns < half) & (columns < first)) | in_second | (columns == slots - 1)
        index = torch.where(columns == slots - 1, lengths - 1, index).clamp(max=tokens - 1)
        back = torch.where(positions < first, positions, positions - first + half)
        back = torch.where(positions == lengths - 1, slots - 1, back).clamp(max=slots - 1)
        return columns, index, real, back
