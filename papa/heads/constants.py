"""Constant matrices: what an encoder's attention is replaced by (paper, Sections 3.1 and 5.2)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.errors import DataError
from papa.heads.kinds import Averages
from papa.heads.substitutes import Weights, normalised, read_at
from papa.models.layer import Heads, LayerAttention, at_least_single, indices, states_of_heads
from papa.spec import SubstituteKind
from papa.spec.substitutes import SUBSTITUTES
from papa.storage.artifacts import ArtifactReference, published, read_metadata, verified
from papa.storage.files import Address
from papa.text.batches import MicroBatch

FILE = "constants.safetensors"


class EntryCounts:
    """Counts of the entries of the constants that inputs read. All layers read the same entries, so
    one count serves all.
    """

    def __init__(self) -> None:
        self._unobserved_and_read = torch.zeros(2, dtype=torch.float64)

    def add(self, observed: Bool[Tensor, "slots slots"], batch: MicroBatch) -> None:
        """Count the entries that a batch reads, and those of them that no average observed."""
        real = batch.attention_mask.double()
        slots = batch.columns
        # rᵀ·U·r summed over the inputs, without a matrix for each of them.
        unobserved = ((real @ (~observed[slots[:, None], slots]).double()) * real).sum()
        # On the device, which is not waited for.
        added = torch.stack([unobserved, real.sum(dim=1).square().sum()])
        self._unobserved_and_read = self._unobserved_and_read.to(added.device) + added

    @property
    def unseen_share(self) -> float:
        """The share of entries read that no input of the average had; 0 before any input."""
        unobserved, read = self._unobserved_and_read.tolist()
        return unobserved / read if read else 0.0


@dataclass(frozen=True)
class ConstantMatrices(Weights):
    """C: one matrix for every head, the same for every input (paper, Section 3.1).

    Attributes:
        matrices: C[layer, head, i, j], what slot i takes from slot j, not masked or normalised.
        seen: whether any input of the average had tokens at both slots; controls see all.
        counts: in how many inputs of the average both slots held a token.
        encoder_digest: of the encoder whose attention was averaged.
        special: the slots of [CLS] and [SEP] in the average's texts; of texts that are not laid out
            in slots the last one alone, or none. With the last slot among them, that is the slot
            of an encoder's last token, whatever the length of a text.
        entries: counts what packed inputs read, where that is asked.
    """

    matrices: Float[Tensor, "layers heads slots slots"]
    seen: Bool[Tensor, "slots slots"]
    kind: SubstituteKind
    counts: Float[Tensor, "slots slots"] | None = None
    encoder_digest: str | None = None
    special: tuple[int, ...] | None = None
    entries: EntryCounts | None = None

    @property
    def slots(self) -> int:
        """S, the length of the layout."""
        return self.matrices.shape[-1]

    @property
    def has_end_slot(self) -> bool:
        """Whether an encoder's last token has the last slot, whatever the length of its text."""
        return self.special is not None and self.slots - 1 in self.special

    @property
    def digest(self) -> str:
        """Of the matrices, of which entries count as seen, and of how tokens read them."""
        content = hashlib.sha256(self.matrices.numpy().tobytes())
        content.update(self.seen.numpy().tobytes())
        content.update(repr(self.special).encode())
        return content.hexdigest()

    @property
    def values(self) -> Tensor:
        return self.matrices

    def with_values(self, values: Tensor) -> ConstantMatrices:
        return replace(self, matrices=values, kind="trained")

    def rows(self, chunk: LayerAttention, layer: int, heads: Heads) -> Tensor:
        check_length(chunk.slots.longest, self.slots)
        matrices = self.matrices[layer].to(chunk.value.device)
        rows = indices(heads, matrices.device)
        query_slots = chunk.slots.queries
        key_slots = chunk.slots.keys
        if self.has_end_slot:
            end_slot = self.slots - 1
            last = chunk.slots.last[:, 0]
            query_slots = torch.where(query_slots == last, end_slot, query_slots)
            key_slots = torch.where(key_slots == last, end_slot, key_slots)
        return read_at(matrices, rows, query_slots, key_slots)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        batch = attention.batch
        if batch is None:
            return super().output(attention, layer, heads)
        if self.entries is not None:
            self.entries.add(self.seen, batch)
        value = at_least_single(states_of_heads(attention.value, heads))
        slots = batch.columns[None]
        matrices = read_at(self.matrices[layer], indices(heads, value.device), slots, slots)[0]
        real = None if batch.dense else batch.attention_mask
        return constant_product(matrices.to(value.dtype), value, real, attention.dropout)

    def save(self, folder: Address, metadata: Mapping[str, object]) -> None:
        """Publish the matrices as an artifact."""
        document = {**metadata, "kind": self.kind, "special": self.special}
        # safetensors takes contiguous tensors only.
        tensors = {"matrices": self.matrices.contiguous(), "seen": self.seen}
        if self.counts is not None:
            tensors["counts"] = self.counts
        with published(folder, document) as scratch:
            save_file(tensors, scratch / FILE)

    @classmethod
    def load(cls, artifact: ArtifactReference | Address) -> ConstantMatrices:
        """Load the matrices of an artifact, whose files are checked."""
        tensors = load_file(verified(artifact, FILE) / FILE)
        metadata = read_metadata(artifact)
        special: list[int] | None = metadata["special"]
        return cls(
            tensors["matrices"],
            tensors["seen"],
            metadata["kind"],
            tensors.get("counts"),
            special=None if special is None else tuple(special),
        )


def check_length(tokens: int, slots: int) -> None:
    """Raise a DataError if a text has more tokens than constant matrices have slots."""
    if tokens > slots:
        raise DataError(
            f"a text has {tokens} tokens and the constant matrices have {slots} slots: cut the "
            "text, make the matrices from texts as long or with more slots, or take the "
            'substitute "relative", which has no limit'
        )


def control(
    kind: SubstituteKind, layers: int, heads: int, slots: int, **parameters: int
) -> ConstantMatrices:
    """Make a control of ``papa.heads.kinds``, the same for every layer."""
    function = resolve_name(SUBSTITUTES[kind].function)
    if "heads" in inspect.signature(function).parameters:
        parameters["heads"] = heads
    matrix = torch.from_numpy(function(slots, **parameters)).float()
    matrices = matrix.expand(layers, heads, slots, slots).clone()
    return ConstantMatrices(matrices, torch.ones(slots, slots, dtype=torch.bool), kind)


def derived(
    kind: SubstituteKind, average: ConstantMatrices, special: Sequence[int], **parameters: int
) -> ConstantMatrices:
    """Return a kind of ``papa.heads.kinds`` from an average; ``special`` are slots of [CLS] and
    [SEP].
    """
    assert average.counts is not None
    averages = Averages(average.matrices.double().numpy(), average.counts.numpy(), special)
    function = resolve_name(SUBSTITUTES[kind].function)
    matrices = torch.from_numpy(function(averages, **parameters)).float()
    # Where a kind knows an entry that no input had, it counts as seen.
    is_known = average.seen | (matrices > 0).any(dim=0).any(dim=0)
    # Slots are read as those of the average are.
    return ConstantMatrices(matrices, is_known, kind, special=average.special)


def constant_product(
    matrices: Float[Tensor, "heads m m"],
    value: Float[Tensor, "batch heads m width"],
    real: Bool[Tensor, "batch m"] | None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads m width"]:
    """Return what constant heads output (paper, Section 3.1): the rows of C on ``real`` slots (None
    for all), divided by the sums of their absolute values, times V; a row that sums to 0 outputs 0.
    With dropout of entries each input needs matrices of its own.
    """
    if dropout > 0:
        rows = matrices.expand(len(value), -1, -1, -1)
        rows = rows if real is None else rows * real[:, None, None, :]
        return torch.matmul(F.dropout(normalised(rows), dropout), value)
    batch, heads, m, width = value.shape
    # Values of padding are cleared instead of columns of C, so that one product serves all inputs.
    cleared = value if real is None else value * real[:, None, :, None]
    flat = cleared.permute(1, 2, 0, 3).reshape(heads, m, batch * width)
    # Inputs that all divide by the same sums have rows normalised once a batch.
    mixed = torch.bmm(normalised(matrices) if real is None else matrices, flat)
    mixed = mixed.view(heads, m, batch, width)
    if real is not None:
        # Autocast would sum in half precision.
        with torch.autocast(value.device.type, enabled=False):
            sums = torch.matmul(matrices.abs(), real.T.to(matrices.dtype))[..., None]
        mixed = mixed / torch.where(sums == 0, 1.0, sums)
    return mixed.permute(2, 0, 1, 3)
