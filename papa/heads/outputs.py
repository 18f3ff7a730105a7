"""Constant outputs: what a head outputs in place of A·V, whatever the other tokens are; and their
means.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor

from papa.heads.observers import ObservedModel
from papa.heads.substitutes import Substitute
from papa.models.layer import Heads, LayerAttention, indices


@dataclass(frozen=True)
class ConstantOutputs(Substitute):
    """The constant output of every head.

    Attributes:
        values: outputs, of which several slots or lengths may share one; of a layer that calls
            attention more than once a pass (DiffLlama) those of each call, one after the other.
        index: which of the outputs slot s takes in an input of n tokens; longer inputs and later
            slots take the last one's.
        calls: how often a layer calls attention in a pass.
    """

    values: Float[Tensor, "layers_calls heads outputs width"]
    index: Int[Tensor, "lengths slots"]
    calls: int = 1

    def with_values(self, values: Tensor) -> ConstantOutputs:
        return replace(self, values=values)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        lengths, slots = self.index.shape
        length = attention.slots.lengths.clamp(max=lengths - 1)[:, None]
        index = self.index.to(length.device)[length, attention.slots.queries.clamp(max=slots - 1)]
        outputs = self.values[layer * self.calls + attention.call].to(index.device)
        return outputs[indices(heads, index.device)][:, index].transpose(0, 1)

    def save(self, path: Path) -> None:
        save_file({"outputs": self.values.contiguous(), "place": self.index}, path)


@dataclass
class MeanOutputs:
    """Means over tokens of each of the first ``slots``; one without any takes that of all."""

    slots: int = 1
    sums: dict[tuple[int, int], Float[Tensor, "heads slots width"]] = field(default_factory=dict)
    counts: Float[Tensor, " slots"] | float = 0.0

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        output = attention.output(attention.all_heads)
        real = attention.slots.real
        slots = attention.slots.queries.clamp(max=self.slots - 1).expand(real.shape).flatten()
        states = output.double() * real[:, None, :, None]
        empty = states.new_zeros(output.shape[1], self.slots, output.shape[-1])
        added = states.transpose(0, 1).flatten(1, 2)
        call = layer, attention.call
        self.sums[call] = self.sums.get(call, empty).index_add_(1, slots, added)
        if call == (0, 0):
            self.counts = self.counts + slots.bincount(real.double().flatten(), self.slots)
        return output

    def substitute(self) -> ConstantOutputs:
        sums = torch.stack([sums.cpu() for _, sums in sorted(self.sums.items())])
        counts = torch.as_tensor(self.counts).cpu()[:, None]
        overall = sums.sum(dim=2, keepdim=True) / counts.sum()
        means = torch.where(counts > 0, sums / counts.clamp(min=1), overall).float()
        index = torch.arange(self.slots).expand(self.slots + 1, -1).contiguous()
        calls = 1 + max(call for _, call in self.sums)
        return ConstantOutputs(means, index, calls)


def mean_outputs(_model: ObservedModel) -> MeanOutputs:
    """Return what averages outputs over all tokens."""
    return MeanOutputs()


def mean_outputs_by_slot(model: ObservedModel) -> MeanOutputs:
    """Return what averages outputs in each slot."""
    return MeanOutputs(model.slots)
