"""The average of attention over unlabelled text (paper, Section 3.1), streamed and mergeable.

C[i, j] = Σ A[i, j] / (number of inputs in which slots i and j both hold a token). Sums are float64.
Every batch's sum is rounded to a multiple of 2^-32 before it is added: such sums are exact in
float64 up to two million inputs, so additions commute, and shards merged in any grouping equal one
pass bit for bit. The rounding (2e-10) is far below float32's own. Against the exact average c of an
entry that n inputs have, in batches of b, the error is at most b · 2^-24 · c + 2^-33 · batches / n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.corpora.batches import MicroBatch, micro_batches
from papa.corpora.split import TokenisedSplit
from papa.encoders.dispatch import InputDependentAttention
from papa.encoders.encoder import Encoder
from papa.encoders.finite import numbers_of, sum_is_finite
from papa.errors import NumbersError
from papa.progress import Progress, ignore_progress

GRID = 2.0**32


@dataclass(frozen=True)
class AttentionSums:
    """Attention summed over some inputs.

    Attributes:
        sums: Σ A over the inputs; float64, multiples of 2^-32.
        counts: inputs in which both slots hold a token; float64 whole numbers.
    """

    sums: Float[Tensor, "layers heads slots slots"]
    counts: Float[Tensor, "slots slots"]

    @torch.inference_mode()
    def merge(self, other: AttentionSums) -> None:
        """Add the sums over other inputs, in place: a third copy would be too large for memory."""
        self.sums.add_(other.sums)
        self.counts.add_(other.counts)

    def average(self) -> ConstantMatrices:
        """The average, entry by entry; entries never seen are 0."""
        average = torch.empty(self.sums.shape)
        # Layer by layer: a float64 quotient of all at once would double the memory of the sums.
        for layer, sums in enumerate(self.sums):
            average[layer] = sums / self.counts.clamp(min=1)
        return ConstantMatrices(
            matrices=average, seen=self.counts > 0, kind="average", counts=self.counts.clone()
        )

    def save(self, path: Path) -> None:
        """Write as safetensors."""
        save_file({"sums": self.sums, "counts": self.counts}, path)

    @classmethod
    def load(cls, path: Path) -> AttentionSums:
        """Read what ``save`` wrote."""
        tensors = load_file(path)
        return cls(sums=tensors["sums"], counts=tensors["counts"])


class AttentionAverager:
    """Streams attention into sums: ``update`` with every layer of a batch, then ``result``."""

    def __init__(
        self, layers: int, heads: int, slots: int, device: torch.device | str = "cpu"
    ) -> None:
        self.sums = torch.zeros(layers, heads, slots, slots, dtype=torch.float64, device=device)
        self.counts = torch.zeros(slots, slots, dtype=torch.float64, device=device)

    def update(
        self,
        layer: int,
        probabilities: Float[Tensor, "batch heads m m"],
        slots: Int[Tensor, " m"],
        attention_mask: Bool[Tensor, "batch m"],
    ) -> None:
        """Add A of one layer over one batch, 0 in columns without a token; the first layer's call
        also counts the inputs.
        """
        pairs = (slots[:, None] * len(self.counts) + slots).flatten()
        if layer == 0:
            real = attention_mask.double()
            self.counts.view(-1).index_add_(0, pairs, (real.T @ real).flatten())
        if not bool(attention_mask.all()):
            # A row of an input without a token there adds nothing.
            probabilities = probabilities * attention_mask[:, None, :, None]
        total = probabilities.sum(dim=0).double().mul_(GRID).round_().div_(GRID)
        # One flat index: with three index tensors this would take six times as long.
        self.sums[layer].flatten(1).index_add_(1, pairs, total.flatten(1))

    def see(
        self, layer: int, own: InputDependentAttention, value: Tensor, batch: MicroBatch
    ) -> Tensor:
        """``update`` with A, which gives A·V."""
        probabilities = own.probabilities()
        self.update(layer, probabilities, batch.columns, batch.attention_mask)
        return torch.matmul(probabilities, value.to(probabilities.dtype))

    def result(self) -> AttentionSums:
        """The sums so far, on the CPU."""
        return AttentionSums(self.sums.cpu(), self.counts.cpu())


@contextmanager
def averaging(encoder: Encoder, slots: int) -> Iterator[AttentionAverager]:
    """Inside the block, every batch given to ``encoder.observe`` is added to the averager."""
    averager = AttentionAverager(encoder.layers, encoder.heads, slots, encoder.device)
    with encoder.watched(averager.see):
        yield averager


@torch.inference_mode()
def average_split(
    encoder: Encoder,
    split: TokenisedSplit,
    *,
    slots: int,
    batch_tokens: int,
    progress: Progress = ignore_progress,
) -> AttentionSums:
    """Sum attention in one pass over a split (or a shard of one); memory does not grow with the
    number of rows.
    """
    averager = AttentionAverager(encoder.layers, encoder.heads, slots, encoder.device)
    batches = micro_batches(split, None, batch_tokens)
    encoder.watch(averager.see, batches, len(split), progress)
    again = micro_batches(split, None, batch_tokens)
    check_sums(averager.sums, encoder, again, f"the {split.name} split")
    return averager.result()


def check_sums(
    sums: Float[Tensor, "layers ..."],
    encoder: Encoder,
    batches: Iterable[MicroBatch],
    text: str,
) -> None:
    """Refuse sums of attention with NaN or infinity; only then are the batches gone through again,
    to say where.
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
