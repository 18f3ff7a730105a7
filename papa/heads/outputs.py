"""Constant outputs: what a head outputs in place of A·V, without anything of other tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.errors import DataError
from papa.heads.observers import ObservedModel, Observer
from papa.heads.substitutes import Substitute
from papa.models.layer import Heads, LayerAttention, Observe, PassTexts, indices
from papa.spec import ConstantsKind
from papa.spec.substitutes import SUBSTITUTES
from papa.storage.artifacts import ArtifactReference, verified
from papa.text.corpus import TokenisedSplit

FILE = "outputs.safetensors"
ObserveRows: TypeAlias = Callable[[Observe, Int[np.ndarray, " rows"]], None]
"""Calls an observer with the attention of every layer in passes over some rows of a text."""


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
    kind: ConstantsKind
    calls: int = 1

    def with_values(self, values: Tensor) -> ConstantOutputs:
        return replace(self, values=values, kind="optimal_output")

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        lengths, slots = self.index.shape
        length = attention.slots.lengths.clamp(max=lengths - 1)[:, None]
        index = self.index.to(length.device)[length, attention.slots.queries.clamp(max=slots - 1)]
        outputs = self.values[layer * self.calls + attention.call].to(index.device)
        return outputs[indices(heads, index.device)][:, index].transpose(0, 1)

    def save(self, path: Path) -> None:
        save_file({"outputs": self.values.contiguous(), "place": self.index}, path)


def read_outputs(artifact: ArtifactReference, kind: ConstantsKind) -> ConstantOutputs | Resampled:
    """Return what a finished step of stage ``constant_outputs`` holds."""
    tensors = load_file(verified(artifact, FILE) / FILE)
    if "texts" not in tensors:
        return ConstantOutputs(tensors["outputs"], tensors["place"], kind)
    choices = tuple(ConstantOutputs(tensors["outputs"], index, kind) for index in tensors["place"])
    return Resampled(choices, tuple(bytes(digest.tolist()) for digest in tensors["texts"]))


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
        return ConstantOutputs(means, index, "mean_output", calls)

    def constant_outputs(self, slots: int) -> ConstantOutputs:
        """Return the means, for inputs of so many slots."""
        outputs = self.substitute()
        if self.slots == 1:  # One mean serves every slot of texts of any length.
            return replace(outputs, index=outputs.index.new_zeros(slots + 1, slots))
        return replace(outputs, kind="mean_output_by_slot")


class Donor(NamedTuple):
    """A text whose outputs other texts take.

    Attributes:
        rank: Its place in the draw: texts of the least rank of their length are drawn.
        text: Its digest; None where it is not known.
        slots: Of its tokens.
        outputs: What heads output in it, call by call.
    """

    rank: bytes
    text: bytes | None
    slots: Int[Tensor, " tokens"]
    outputs: list[Float[Tensor, "heads tokens width"]]


def draw_rank(seed: int, text: bytes) -> bytes:
    """Return a random number of a text, of which the seed and the text alone decide: a draw by it
    is the same in whatever order, batches and process the texts come.
    """
    return sha256(f"{seed} ".encode() + text).digest()


def _digests(attention: LayerAttention, texts: int) -> tuple[bytes | None, ...]:
    """Return what tells the texts of a pass apart; None for each where that is not known."""
    return attention.texts.digests if attention.texts else (None,) * texts


@dataclass
class DrawnOutputs:
    """What heads output in two drawn texts of each length, so that one is another text.

    Attributes:
        seed: of the draw.
        donors: by length, at most two, of the least rank, the least first.
        observed: how many texts were observed.
        drawn: donors of this pass, by their row; filled layer by layer.
    """

    seed: int
    donors: dict[int, list[Donor]] = field(default_factory=dict)
    observed: int = 0
    drawn: dict[int, Donor] = field(default_factory=dict)
    calls: int = 1

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        output = attention.output(attention.all_heads)
        real = attention.slots.real
        self.calls = max(self.calls, attention.call + 1)
        if layer == 0 and attention.call == 0:
            slots = attention.slots.queries.expand(real.shape).cpu()
            real_here = real.cpu()
            self.drawn = {}
            for row, text in enumerate(_digests(attention, len(output))):
                self._draw(row, text, slots[row, real_here[row]])
        for row, donor in self.drawn.items():
            donor.outputs.append(output[row][:, attention.slots.real[row]].float().cpu())
        return output

    def _draw(self, row: int, text: bytes | None, slots: Int[Tensor, " tokens"]) -> None:
        """Keep the text if it is one of the two of least rank of its length."""
        self.observed += 1
        name = str(self.observed).encode() if text is None else text
        donor = Donor(draw_rank(self.seed, name), text, slots, [])
        donors = self.donors.setdefault(len(slots), [])
        if not len(slots) or any(other.rank == donor.rank for other in donors):
            return
        donors.append(donor)
        donors.sort(key=lambda other: other.rank)
        del donors[2:]
        if donor.rank in (other.rank for other in donors):
            self.drawn[row] = donor

    def substitute(self, slots: int = 0) -> Resampled:
        """Return the substitute for texts of so many slots, or of as many as the donors have."""
        donors = [donor for _, of_length in sorted(self.donors.items()) for donor in of_length]
        slots = max([slots, *(int(donor.slots.max()) + 1 for donor in donors)])
        by_call = zip(*(donor.outputs for donor in donors), strict=True)
        outputs = torch.stack([torch.cat(of_donors, dim=1) for of_donors in by_call])
        lengths = torch.tensor([len(donor.slots) for donor in donors])
        requested = torch.arange(slots + 1)
        starts = zip(donors, lengths.cumsum(0) - lengths, strict=True)
        # A slot that a donor lacks has its token before.
        rows = [
            start - 1 + torch.searchsorted(donor.slots, requested[:-1], right=True)
            for donor, start in starts
        ]
        # The shortest that is long enough, else the longest.
        longer = lengths - requested[:, None]
        order = (longer.abs() + (longer < 0) * 2**32).argsort(dim=1, stable=True).T[:2]
        index = torch.stack(rows)
        choices = tuple(
            ConstantOutputs(outputs, index[chosen], "resampled_output", self.calls)
            for chosen in order
        )
        return Resampled(choices, tuple(donors[chosen].text for chosen in order[0].tolist()))

    def constant_outputs(self, slots: int) -> ConstantOutputs | Resampled:
        """Return the substitute for inputs of so many slots; where passes do not say which text is
        which, what the first donor of each length output.
        """
        resampled = self.substitute(slots)
        return resampled.choices[0] if None in resampled.texts else resampled


def mean_outputs(_model: ObservedModel) -> MeanOutputs:
    """Return what averages outputs over all tokens."""
    return MeanOutputs()


def mean_outputs_by_slot(model: ObservedModel) -> MeanOutputs:
    """Return what averages outputs in each slot."""
    return MeanOutputs(model.slots)


def drawn_outputs(model: ObservedModel) -> DrawnOutputs:
    """Return what keeps the outputs of drawn texts."""
    return DrawnOutputs(model.seed)


@dataclass(frozen=True)
class Resampled(Substitute):
    """What the head output at the same slot of another text (causal scrubbing): of the donors the
    shortest that is long enough, else the longest; at a slot that it lacks, its token before.
    ``choices`` are for texts that are not, and that are, the first donor of their length, and
    ``texts`` tell those donors apart.
    """

    choices: tuple[ConstantOutputs, ...]
    texts: tuple[bytes | None, ...]

    def save(self, path: Path) -> None:
        """Write it to a file, which ``read_outputs`` reads; all texts have to be known."""
        first = self.choices[0]
        digests = [list(text) for text in self.texts if text is not None]
        tensors = {
            "outputs": first.values.contiguous(),
            "place": torch.stack([choice.index for choice in self.choices]),
            "texts": torch.tensor(digests, dtype=torch.uint8),
        }
        save_file(tensors, path)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        output = self.choices[0].output(attention, layer, heads)
        lengths = attention.slots.lengths.clamp(max=len(self.texts) - 1).tolist()
        is_donor = [
            text is not None and text == self.texts[length]
            for text, length in zip(_digests(attention, len(lengths)), lengths, strict=True)
        ]
        if not any(is_donor):
            return output
        if len(self.choices) < 2:
            raise DataError(
                "there is no other text to resample from: give more texts in data, or "
                "another substitute"
            )
        alternative = self.choices[1].output(attention, layer, heads)
        mask = torch.tensor(is_donor).to(output.device)[:, None, None, None]
        return torch.where(mask, alternative, output)


@runtime_checkable
class OutputObserver(Observer, Protocol):
    """An observer that computes constant outputs."""

    def constant_outputs(self, slots: int) -> ConstantOutputs | Resampled:
        """Return the outputs, for inputs of so many slots."""


@torch.inference_mode()
def outputs_over(
    observe_rows: ObserveRows,
    split: TokenisedSplit,
    kind: ConstantsKind,
    size: tuple[int, int],
    seed: int | None = None,
    donors: int = 1,
) -> ConstantOutputs | Resampled:
    """Average A·V over a split, by slot or over all tokens; or, with a seed, draw once the A·V of
    another input of the same number of tokens (causal scrubbing).

    Args:
        observe_rows: Runs the model over rows of the split.
        split: The text.
        kind: The substitute's name.
        size: (layers, heads in each).
        seed: Of the draw.
        donors: How many texts of each length are drawn: 2 where passes say which text is which, so
            that no text takes its own outputs.
    """
    entry = SUBSTITUTES[kind]
    model = ObservedModel(*size, seed=seed or 0, slots=split.slots)
    observer: OutputObserver = resolve_name(entry.observer)(model)
    rows = split.rows
    if entry.drawn:
        drawn = drawn_rows(split, model.seed).values()
        rows = np.array(sorted(row for of_length in drawn for row in of_length[:donors]))
    observe_rows(observer.observe, rows)
    return observer.constant_outputs(split.slots)


def drawn_rows(split: TokenisedSplit, seed: int) -> dict[int, list[int]]:
    """Return for each number of tokens that rows have the two rows of the least rank, the least
    first: those that ``DrawnOutputs`` keeps of all rows. Rows with the same tokens are one text.
    """
    row_by_rank: dict[int, dict[bytes, int]] = defaultdict(dict)
    # By shards, so that memory does not grow with the text.
    for index in range(len(split.shards)):
        shard = split.shard(index)
        tokens = shard.tokens()
        texts = torch.from_numpy(tokens.input_ids.astype(np.int64)).split(tokens.lengths.tolist())
        for row, text in zip(shard.rows.tolist(), texts, strict=True):
            (digest,) = PassTexts(text[None], None).digests
            least = row_by_rank[len(text)]
            least.setdefault(draw_rank(seed, digest), row)
            if len(least) > 2:
                del least[max(least)]
    return {
        length: [row for _, row in sorted(least.items())]
        for length, least in sorted(row_by_rank.items())
    }
