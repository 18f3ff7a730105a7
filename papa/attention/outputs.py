"""Constant outputs: what a head puts out in place of A·V, whatever the input is.

A constant output is no constant mixing: nothing of the other tokens is left in it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.attention.substitutes import Substitute
from papa.corpora.batches import micro_batches
from papa.corpora.corpus import TokenisedSplit
from papa.encoders.dispatch import Heads, LayerAttention, indices
from papa.encoders.encoder import Encoder
from papa.errors import DataError
from papa.progress import Progress, ignore_progress
from papa.spec import ConstantsKind
from papa.spec.study import OPTIMAL
from papa.storage.artifacts import ArtifactReference, verified

FILE = "outputs.safetensors"


@dataclass(frozen=True)
class ConstantOutputs(Substitute):
    """What every head puts out at a slot of an input of some length.

    Attributes:
        outputs: by place.
        index: of slot s in an input of n tokens; longer inputs and later slots have the last.
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

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        lengths, slots = self.index.shape
        length = attention.lengths.clamp(max=lengths - 1)[:, None]
        places = self.index.to(length.device)[length, attention.query_slots.clamp(max=slots - 1)]
        outputs = self.outputs[layer].to(places.device)
        return outputs[indices(heads, places.device)][:, places].transpose(0, 1)

    def save(self, path: Path) -> None:
        """Write as safetensors."""
        save_file({"outputs": self.outputs.contiguous(), "place": self.index}, path)


def read_outputs(found: ArtifactReference, kind: ConstantsKind) -> ConstantOutputs:
    """What a finished step of stage ``outputs`` holds."""
    held = load_file(verified(found, FILE) / FILE)
    return ConstantOutputs(held["outputs"], held["place"], kind)


@dataclass
class MeanOutputs:
    """Means of what heads put out, over the tokens of each of the first ``slots``; 1 for one mean
    over all tokens. A slot that no input had takes the mean over all.
    """

    slots: int = 1
    sums: dict[int, Float[Tensor, "heads slots width"]] = field(default_factory=dict)
    counts: dict[int, Float[Tensor, " slots"]] = field(default_factory=dict)

    def see(self, attention: LayerAttention, layer: int) -> Tensor:
        output, real = attention.output(attention.every), attention.real_queries
        if layer not in self.sums:
            shape = (output.shape[1], self.slots, output.shape[-1])
            self.sums[layer] = output.new_zeros(shape, dtype=torch.float64)
            self.counts[layer] = output.new_zeros(self.slots, dtype=torch.float64)
        at = attention.query_slots.clamp(max=self.slots - 1).expand(real.shape).flatten()
        states = output.double() * real[:, None, :, None]
        self.sums[layer].index_add_(1, at, states.transpose(0, 1).flatten(1, 2))
        self.counts[layer].index_add_(0, at, real.double().flatten())
        return output

    def substitute(self) -> ConstantOutputs:
        sums = torch.stack([self.sums[layer].cpu() for layer in sorted(self.sums)])
        counts = self.counts[0].cpu()[:, None]
        overall = sums.sum(dim=2, keepdim=True) / counts.sum()
        means = torch.where(counts > 0, sums / counts.clamp(min=1), overall).float().cpu()
        index = torch.arange(self.slots).expand(self.slots + 1, -1).contiguous()
        return ConstantOutputs(means, index, "mean_output")


class Donor(NamedTuple):
    """What heads of a layer put out in a text, at its slots, and what tells it from others."""

    text: bytes | None
    slots: Int[Tensor, " tokens"]
    outputs: Float[Tensor, "heads tokens width"]


@dataclass
class DrawnOutputs:
    """What heads put out in two texts of each length, as far as there are two, drawn among the
    texts seen, so that one of them is another; all layers have the same texts.
    """

    seed: int
    kept: dict[int, dict[int, list[Donor]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    draws: dict[int, random.Random] = field(default_factory=dict)
    seen: dict[int, set[bytes | int]] = field(default_factory=lambda: defaultdict(set))
    drawn: list[tuple[int, int]] = field(default_factory=list)

    def see(self, attention: LayerAttention, layer: int) -> Tensor:
        output, real = attention.output(attention.every), attention.real_queries
        texts = attention.texts or (None,) * len(output)
        if layer == 0:
            lengths = real.sum(dim=1).tolist()
            self.drawn = [self._draw(*one) for one in zip(lengths, texts, strict=True)]
        slots = attention.query_slots.expand(real.shape)
        for row, (length, place) in enumerate(self.drawn):
            donors, own = self.kept[layer][length], real[row]
            if place < 2:
                donor = Donor(texts[row], slots[row, own].cpu(), output[row][:, own].float().cpu())
                donors[place : place + (len(donors) == 2)] = [donor]
        return output

    def _draw(self, length: int, text: bytes | None) -> tuple[int, int]:
        """A reservoir of two: a text's length, and its place among the two, or 2."""
        known = self.seen[length]
        name = len(known) if text is None else text
        if not length or name in known:
            return length, 2
        known.add(name)
        draw = self.draws.setdefault(length, random.Random(f"{self.seed} {length}"))
        return length, draw.randrange(len(known))

    def substitute(self, slots: int = 0) -> Resampled:
        """For texts of so many slots, or as many as the donors have."""
        donors = [one for _, own in sorted(self.kept[0].items()) for one in own]
        slots = max([slots, *(int(donor.slots.max()) + 1 for donor in donors)])
        outputs, rows, start = list[Tensor](), list[Tensor](), 0
        for layer in sorted(self.kept):
            of_layer = [one.outputs for _, own in sorted(self.kept[layer].items()) for one in own]
            outputs.append(torch.cat(of_layer, dim=1))
        for donor in donors:
            rows.append(
                start + torch.searchsorted(donor.slots, torch.arange(slots), right=True) - 1
            )
            start += len(donor.slots)

        def worse(asked: int, number: int) -> tuple[bool, int, int]:
            length = len(donors[number].slots)
            return length < asked, abs(length - asked), number

        order = [
            sorted(range(len(donors)), key=partial(worse, asked)) for asked in range(slots + 1)
        ]
        tables = [torch.stack([rows[own[n]] for own in order]) for n in range(min(2, len(donors)))]
        made = [ConstantOutputs(torch.stack(outputs), one, "resampled_output") for one in tables]
        texts = tuple(donors[own[0]].text for own in order)
        return Resampled(made[0], made[1] if made[1:] else None, texts)


@dataclass(frozen=True)
class Resampled(Substitute):
    """What the head put out at the same slot of another text (causal scrubbing): of the donors the
    shortest that is long enough, else the longest; at a slot that it lacks, its token before.

    Attributes:
        first, second: of texts that are not, and that are, the first donor of their length.
        texts: what tells the first donor of each length from other texts.
    """

    first: ConstantOutputs
    second: ConstantOutputs | None
    texts: tuple[bytes | None, ...]

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        found = self.first.output(attention, layer, heads)
        lengths = attention.lengths.clamp(max=len(self.texts) - 1).tolist()
        same = [
            text is not None and text == self.texts[length]
            for text, length in zip(attention.texts or (), lengths, strict=False)
        ]
        if not any(same):
            return found
        if self.second is None:
            raise DataError(
                "there is no other text to resample from: give more texts in data, or another "
                "substitute"
            )
        other = self.second.output(attention, layer, heads)
        return torch.where(torch.tensor(same).to(found.device)[:, None, None, None], other, found)


@torch.inference_mode()
def mean_outputs(
    encoder: Encoder,
    split: TokenisedSplit,
    *,
    by_slot: bool,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> ConstantOutputs:
    """The mean of A·V over a split: over all tokens, or over those of each slot."""
    means = MeanOutputs(split.slots if by_slot else 1)
    encoder.watch(means.see, micro_batches(split, None, batch_tokens), len(split), progress)
    found = means.substitute()
    if by_slot:
        return replace(found, kind="mean_output_by_slot")
    return replace(found, index=found.index.new_zeros(split.slots + 1, split.slots))


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
    """A·V of another input of the same number of tokens, drawn once (causal scrubbing)."""
    drawn, rows = DrawnOutputs(seed), np.array(sorted(drawn_rows(split, seed).values()))
    encoder.watch(drawn.see, micro_batches(split, rows, batch_tokens), len(rows), progress)
    return drawn.substitute(split.slots).first


def drawn_rows(split: TokenisedSplit, seed: int) -> dict[int, int]:
    """A row of the split for each number of tokens that its rows have."""
    rows = split.rows
    return {
        length: int(random.Random(f"{seed} {length}").choice(rows[split.lengths == length]))
        for length in np.unique(split.lengths).tolist()
    }
