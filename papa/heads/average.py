"""The average of attention over unlabelled text (paper, Section 3.1), streamed and mergeable.

C[i, j] = Σ A[i, j] / (number of inputs in which slots i and j both hold a token). Sums are float64.
Every batch's sum is rounded to a multiple of 2^-32 before it is added: such sums are exact in
float64 up to two million inputs, so additions commute, and shards merged in any grouping equal one
pass bit for bit. The rounding (2e-10) is far below float32's own. Against the exact average c of an
entry that n inputs have, in batches of b, the error is at most b · 2^-24 · c + 2^-33 · batches / n.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.errors import NumbersError
from papa.heads.constants import ConstantMatrices
from papa.heads.observers import ObservedModel
from papa.heads.substitutes import Weights
from papa.heads.sums import AttentionSums
from papa.models.encoder import Encoder, numbers_of, sum_is_finite
from papa.models.layer import Heads, LayerAttention, indices
from papa.progress import Progress, ignore_progress
from papa.text.batches import MicroBatch, micro_batches
from papa.text.corpus import TokenisedSplit

GRID = 2.0**32


def average_of(sums: AttentionSums) -> ConstantMatrices:
    """Return the average, entry by entry; entries never seen are 0."""
    average = torch.empty(sums.sums.shape)
    # Layer by layer: a float64 quotient of all at once would double the memory of the sums.
    for layer, layer_sums in enumerate(sums.sums):
        average[layer] = torch.from_numpy(layer_sums / np.maximum(sums.counts, 1))
    counts = torch.tensor(sums.counts)
    return ConstantMatrices(average, counts > 0, "average", counts, special=sums.special)


def attention_averager(model: ObservedModel) -> AttentionAverager:
    """Return what averages A by position, for as many slots as the longest text has tokens."""
    return AttentionAverager(model.layers, model.heads, device=model.device, by_position=True)


class AttentionAverager:
    """Streams attention into sums of A by slot (paper, Section 3.1); slots grow with texts that
    have more tokens.

    With ``by_position`` slots are positions of padded texts, and not a layout's. An encoder's last
    token is then in the last slot, whatever the length of its text, as a layout has it.
    """

    def __init__(
        self,
        layers: int,
        heads: int,
        slots: int = 0,
        device: torch.device | str = "cpu",
        *,
        by_position: bool = False,
    ) -> None:
        # None: unknown until the first layer runs; then True for encoders of padded texts.
        self._has_end_slot = None if by_position else False
        self.sums = torch.zeros(layers, heads, slots, slots, dtype=torch.float64, device=device)
        self.counts = torch.zeros(slots, slots, dtype=torch.float64, device=device)

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        """Add A of one layer over one batch; the first layer's call also counts the inputs."""
        growth = attention.slots.longest - len(self.counts)
        if growth > 0:
            self.sums = F.pad(self.sums, (0, growth, 0, growth))
            self.counts = F.pad(self.counts, (0, growth, 0, growth))
        if self._has_end_slot is None:
            self._has_end_slot = bool((attention.slots.last >= 0).all())
        if layer == 0:
            real = attention.slots.real.double()
            self._add(self.counts[None], attention, (real[:, :, None] * real[:, None, :])[:, None])
        outputs: list[Tensor] = []
        for chunk in attention.chunks():
            probabilities = chunk.probabilities(chunk.all_heads)
            outputs.append(probabilities @ chunk.value.to(probabilities.dtype))
            # A row of an input without a token there adds nothing.
            self._add(self.sums[layer], chunk, probabilities * chunk.slots.real[:, None, :, None])
        return (
            attention.output(attention.all_heads) if attention.rules else torch.cat(outputs, dim=2)
        )

    def _add(
        self,
        sums: Float[Tensor, "heads slots slots"],
        chunk: LayerAttention,
        weights: Float[Tensor, "batch heads queries keys"],
    ) -> None:
        """Add weights of pairs at their slots, rounded to the grid."""
        query_slots = self._rows_of(chunk.slots.queries, chunk)
        key_slots = self._rows_of(chunk.slots.keys, chunk)
        pairs = query_slots[:, :, None] * len(self.counts) + key_slots[:, None, :]
        if len(pairs) == 1:
            weights = weights.sum(dim=0, keepdim=True)
        on_grid = weights.double().mul_(GRID).round_().div_(GRID)
        # One flat index: with three index tensors this would take six times as long.
        entries = pairs.expand(len(on_grid), -1, -1).flatten()
        added = on_grid.transpose(0, 1).flatten(1).to(sums.device)
        sums.flatten(1).index_add_(1, entries.to(sums.device), added)

    def _rows_of(
        self, slots: Int[Tensor, "#batch tokens"], chunk: LayerAttention
    ) -> Int[Tensor, "#batch tokens"]:
        """Return where sums of tokens are kept: those of the last token come first while sums
        grow.
        """
        if not self._has_end_slot:
            return slots
        # Beyond its last token a text has padding, which adds nothing.
        following = (slots + 1).clamp(max=len(self.counts) - 1)
        return torch.where(slots == chunk.slots.last[:, 0], 0, following)

    def result(self) -> AttentionSums:
        sums = self.sums.cpu().numpy()
        counts = self.counts.cpu().numpy()
        if not self._has_end_slot:
            return AttentionSums(sums, counts)
        sums = np.roll(sums, (-1, -1), (-2, -1))
        counts = np.roll(counts, (-1, -1), (0, 1))
        return AttentionSums(sums, counts, special=(len(counts) - 1,))

    def substitute(self) -> ConstantMatrices:
        return average_of(self.result())


@torch.inference_mode()
def average_split(
    encoder: Encoder,
    split: TokenisedSplit,
    *,
    slots: int,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> AttentionSums:
    """Sum attention in one pass over a split; memory does not grow with the number of rows."""
    averager = AttentionAverager(encoder.layers, encoder.heads, slots, encoder.device)
    batches = micro_batches(split, None, batch_tokens)
    encoder.observe(averager.observe, batches, len(split), progress)
    repeated_batches = micro_batches(split, None, batch_tokens)
    check_sums(averager.sums, encoder, repeated_batches, f"the {split.name} split")
    return averager.result()


def check_sums(
    sums: Float[Tensor, "layers ..."], encoder: Encoder, batches: Iterable[MicroBatch], text: str
) -> None:
    """Raise NumbersError if sums of attention hold NaN or infinity.

    It then runs the batches of ``text`` (the corpus, for the message) again to find the first one.
    """
    if sum_is_finite(sums):
        return
    for number, batch in enumerate(batches, 1):
        with numbers_of(f"batch {number} of {text}"):
            encoder.token_states(batch)
    layer = int((~sums.isfinite()).flatten(1).any(dim=1).nonzero()[0, 0])
    raise NumbersError(
        f"the attention of layer {layer}", "no hidden state does: look at the size of its weights"
    )


_BOUNDARY = 2
"""Columns of tokens with a weight of their own, as heads rest on them: a text's first token, and in
an encoder its last.
"""


@dataclass(frozen=True)
class ByDistance(Weights):
    """What a token takes from another by the distance between them, and from boundary tokens.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; d = 0 is in the
            middle. A distance beyond the first or the last entry has that entry's.
        boundary_weights: of a text's first token, and of the last one in an encoder.
        sinks: mean share of each head's learned sink, in models that have such.
    """

    weights: Float[Tensor, "layers heads distances"]
    boundary_weights: Float[Tensor, "layers heads 2"]
    sinks: Float[Tensor, "layers heads"] | None = None

    def rows(self, chunk: LayerAttention, layer: int, heads: Heads) -> Tensor:
        table = torch.cat([self.boundary_weights[layer], self.weights[layer]], dim=-1)
        table = table.to(chunk.value.device)
        columns = _distance_columns(chunk, self.weights.shape[-1] // 2)
        return table[indices(heads, table.device)][:, columns].transpose(0, 1)

    def sink_weights(self, layer: int, heads: Heads) -> Float[Tensor, " chosen"] | None:
        if self.sinks is None:
            return None
        return self.sinks[layer][indices(heads, self.sinks.device)]


def _distance_columns(chunk: LayerAttention, reach: int) -> Int[Tensor, "#batch queries keys"]:
    """Return the column of each pair of tokens in a table of the first key, the last one, and 2 ·
    ``reach`` + 1 distances, farthest ahead first.
    """
    keys = chunk.slots.keys[:, None, :]
    columns = (chunk.slots.queries[:, :, None] - keys).clamp(-reach, reach) + reach + _BOUNDARY
    return torch.where(keys == 0, 0, torch.where(keys == chunk.slots.last, 1, columns))


def average_by_distance(_model: ObservedModel) -> AverageByDistance:
    """Return what averages A by the distance between tokens."""
    return AverageByDistance()


@dataclass
class AverageByDistance:
    """Means of A along diagonals, and of its boundary tokens; the sums' last row counts pairs."""

    sums: dict[int, Float[Tensor, "rows columns"]] = field(default_factory=dict)
    sink_sums: dict[int, Float[Tensor, " heads"]] = field(default_factory=dict)
    queries: dict[int, int] = field(default_factory=dict)

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        heads = len(attention.all_heads)
        empty = attention.value.new_zeros(heads + 1, _BOUNDARY + 1, dtype=torch.float64)
        sums = self.sums.get(layer, empty)
        growth = attention.slots.longest - 1 - (sums.shape[1] - _BOUNDARY) // 2
        if growth > 0:
            distances = F.pad(sums[:, _BOUNDARY:], (growth, growth))
            sums = torch.cat([sums[:, :_BOUNDARY], distances], dim=1)
        self.sums[layer] = sums
        reach = (sums.shape[1] - _BOUNDARY) // 2
        for chunk in attention.chunks():
            pairs = chunk.slots.real[:, :, None].expand(-1, -1, chunk.key.shape[-2])
            pairs = pairs if chunk.mask is None else pairs & chunk.mask[:, 0]
            weights = chunk.probabilities(chunk.all_heads).double() * pairs[:, None]
            columns = _distance_columns(chunk, reach).expand(pairs.shape).flatten()
            sums[:-1].index_add_(1, columns, weights.transpose(0, 1).flatten(1))
            sums[-1].index_add_(0, columns, pairs.double().flatten())
            if attention.sinks is not None:
                shares = (1 - weights.sum(dim=-1)) * chunk.slots.real[:, None]
                self.sink_sums[layer] = self.sink_sums.get(layer, 0) + shares.sum(dim=(0, 2))
                self.queries[layer] = self.queries.get(layer, 0) + int(chunk.slots.real.sum())
        return attention.output(attention.all_heads)

    def substitute(self) -> ByDistance:
        weights: list[Tensor] = []
        boundary_weights: list[Tensor] = []
        for _, sums in sorted(self.sums.items()):
            means = sums[:-1] / sums[-1].clamp(min=1)
            observed = _last_observed_towards_zero(sums[-1, _BOUNDARY:] > 0)
            weights.append(means[:, _BOUNDARY:][:, observed])
            boundary_weights.append(means[:, :_BOUNDARY])
        sinks: Tensor | None = None
        if len(self.sink_sums) == len(self.sums):
            shares = [self.sink_sums[layer] / self.queries[layer] for layer in sorted(self.sums)]
            sinks = torch.stack(shares).float()
        return ByDistance(
            torch.stack(weights).float(), torch.stack(boundary_weights).float(), sinks
        )


def _last_observed_towards_zero(observed: Bool[Tensor, " distances"]) -> Int[Tensor, " distances"]:
    """Return, for each distance d, the index of the largest observed distance of the same sign that
    is at most |d|; the index of distance 0 where there is none.
    """
    middle = len(observed) // 2
    behind, ahead = (
        torch.where(side, torch.arange(middle + 1, device=observed.device), 0).cummax(dim=0).values
        for side in (observed[: middle + 1].flip(0), observed[middle:])
    )
    return torch.cat([(middle - behind).flip(0), middle + ahead[1:]])
