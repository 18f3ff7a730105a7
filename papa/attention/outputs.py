"""Constant outputs: what a head puts out in place of A·V, whatever the input is.

A constant output is no constant mixing: nothing of the other tokens is left in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.corpora.batches import MicroBatch, micro_batches
from papa.corpora.split import TokenisedSplit
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.encoder import Encoder
from papa.progress import Progress, ignore_progress
from papa.spec import ConstantsKind
from papa.spec.constants import OPTIMAL
from papa.storage.artifacts import ArtifactReference, verified

FILE = "outputs.safetensors"


@dataclass(frozen=True)
class ConstantOutputs:
    """What every head puts out at a slot of an input of some length.

    Attributes:
        outputs: by place.
        index: of slot s in an input of n tokens.
    """

    outputs: Float[Tensor, "layers heads places width"]
    index: Int[Tensor, "lengths slots"]
    kind: ConstantsKind

    @property
    def values(self) -> Tensor:
        """What training changes."""
        return self.outputs

    def of(self, values: Tensor) -> ConstantOutputs:
        """Trained outputs in place of these."""
        return replace(self, outputs=values, kind=OPTIMAL)

    def to(self, device: torch.device | str) -> ConstantOutputs:
        """Themselves on a device."""
        return replace(self, outputs=self.outputs.to(device), index=self.index.to(device))

    def at(
        self,
        layer: int,
        heads: Int[Tensor, " chosen"],
        lengths: Int[Tensor, " batch"],
        slots: Int[Tensor, "#batch m"],
    ) -> Float[Tensor, "batch chosen m width"]:
        """What some heads of a layer put out for inputs of these lengths at these slots."""
        places = self.index[lengths[:, None], slots]
        return self.outputs[layer][heads][:, places].transpose(0, 1)

    def seen_at(self, slots: Int[Tensor, " m"]) -> None:
        """No entries are read of them."""

    def product(
        self,
        layer: int,
        heads: Int[Tensor, " chosen"],
        value: Float[Tensor, "batch chosen m value_width"],
        slots: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch chosen m width"]:
        """``at``, for inputs with real tokens at these slots."""
        return self.at(layer, heads, real.sum(dim=1), slots[None]).to(value.dtype)

    def save(self, path: Path) -> None:
        """Write as safetensors."""
        save_file({"outputs": self.outputs.contiguous(), "place": self.index}, path)


def read_outputs(found: ArtifactReference, kind: ConstantsKind) -> ConstantOutputs:
    """What a finished step of stage ``outputs`` holds."""
    held = load_file(verified(found, FILE) / FILE)
    return ConstantOutputs(held["outputs"], held["place"], kind)


@torch.inference_mode()
def mean_outputs(
    encoder: Encoder,
    split: TokenisedSplit,
    *,
    by_slot: bool,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> ConstantOutputs:
    """The mean of A·V over a split: over all tokens, or over those of each slot.

    A slot that no input had takes the mean over all.
    """
    shape = (encoder.layers, encoder.heads, split.slots, encoder.head_width)
    sums = torch.zeros(shape, dtype=torch.float64, device=encoder.device)
    counts = torch.zeros(split.slots, dtype=torch.float64, device=encoder.device)

    def see(layer: int, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        output, real = own.product(value), batch.attention_mask
        total = (output.double() * real[:, None, :, None]).sum(dim=0)
        sums[layer].index_add_(1, batch.columns, total)
        if layer == 0:
            counts.index_add_(0, batch.columns, real.double().sum(dim=0))
        return output

    encoder.watch(see, micro_batches(split, None, batch_tokens), len(split), progress)
    overall = sums.sum(dim=2, keepdim=True) / counts.sum()
    index = torch.zeros(split.slots + 1, split.slots, dtype=torch.int64)
    if not by_slot:
        return ConstantOutputs(overall.float().cpu(), index, "mean_output")
    seen = counts[:, None] > 0
    means = torch.where(seen, sums / counts[:, None].clamp(min=1), overall)
    return ConstantOutputs(
        means.float().cpu(), index + torch.arange(split.slots), "mean_output_by_slot"
    )


mean_output = partial(mean_outputs, by_slot=False)
mean_output_by_slot = partial(mean_outputs, by_slot=True)


@torch.inference_mode()
def resampled_outputs(
    encoder: Encoder,
    split: TokenisedSplit,
    *,
    seed: int,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> ConstantOutputs:
    """A·V of another input of the same number of tokens, drawn once (causal scrubbing).

    A length that no input of the split has takes the next longer one that an input has, else the
    longest. At a slot that the drawn input lacks, as in pairs, its token before that slot stands.
    """
    drawn = drawn_rows(split, seed)
    found: list[list[Tensor]] = [[] for _ in range(encoder.layers)]
    index = torch.zeros(split.slots + 1, split.slots, dtype=torch.int64)
    places = 0

    def see(layer: int, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        nonlocal places
        output = own.product(value)
        found[layer].append(batch.pack_heads(output)[0].float().cpu())
        if layer == 0:
            of_tokens, slots = batch.inputs_of_tokens.cpu(), batch.slot_ids.cpu()
            for number in range(len(batch.rows)):
                slots_of = slots[of_tokens == number]
                every = torch.searchsorted(slots_of, torch.arange(split.slots), right=True) - 1
                index[len(slots_of)] = places + every
                places += len(slots_of)
        return output

    rows = np.array(sorted(drawn.values()))
    encoder.watch(see, micro_batches(split, rows, batch_tokens), len(rows), progress)
    for length in range(split.slots + 1):
        index[length] = index[min((own for own in drawn if own >= length), default=max(drawn))]
    outputs = torch.stack([torch.cat(own, dim=1) for own in found])
    return ConstantOutputs(outputs, index, "resampled_output")


def drawn_rows(split: TokenisedSplit, seed: int) -> dict[int, int]:
    """A row of the split for each number of tokens that its rows have."""
    rows = split.rows
    return {
        length: int(random.Random(f"{seed} {length}").choice(rows[split.lengths == length]))
        for length in np.unique(split.lengths).tolist()
    }
