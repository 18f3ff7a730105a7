"""Constant matrices: what an encoder's attention is replaced by (paper, Sections 3.1 and 5.2); and
constants by the distance of two tokens, in inputs whose tokens stand side by side.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.attention.kinds import Averages
from papa.attention.product import at_slots, constant_product, masked_product
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError
from papa.spec import ConstantsKind
from papa.spec.constants import CONTROLS, DERIVED
from papa.storage.artifacts import Address, ArtifactReference, published, read_metadata, verified

FILE = "constants.safetensors"
APART = 2
"""Tokens with a weight of their own, as heads rest on them: the first, and an encoder's last."""


@dataclass(frozen=True)
class ConstantMatrices:
    """C: one matrix for every head, the same for every input (paper, Section 3.1).

    Attributes:
        matrices: C[layer, head, i, j], what slot i takes from slot j before rows are masked and
            normalised.
        seen: whether any input of the average had tokens at both slots; controls count as seen
            everywhere.
        kind: as the specification names it.
        counts: in how many inputs of the average both slots held a token, whole numbers; None where
            there was no average, and for matrices that are only to replace attention.
        encoder_digest: of the encoder whose attention was averaged; None where it is not known, or
            does not matter.
        special: the slots of [CLS] and [SEP] in the average's texts; None where they are not known.
    """

    matrices: Float[Tensor, "layers heads slots slots"]
    seen: Bool[Tensor, "slots slots"]
    kind: ConstantsKind
    counts: Float[Tensor, "slots slots"] | None = None
    encoder_digest: str | None = None
    special: tuple[int, ...] | None = None

    @property
    def slots(self) -> int:
        """S, the length of the layout."""
        return self.matrices.shape[-1]

    @property
    def digest(self) -> str:
        """Of the matrices, and of which entries count as seen."""
        content = hashlib.sha256(self.matrices.numpy().tobytes())
        content.update(self.seen.numpy().tobytes())
        return content.hexdigest()

    @property
    def values(self) -> Tensor:
        """What training changes."""
        return self.matrices

    def of(self, values: Tensor) -> ConstantMatrices:
        """Trained matrices in place of these."""
        return replace(self, matrices=values, kind="trained")

    def seen_at(self, slots: Int[Tensor, " m"]) -> Bool[Tensor, "m m"]:
        """Which pairs of these slots any input of the average had tokens at."""
        return self.seen[slots[:, None], slots]

    def product(
        self,
        layer: int,
        heads: Int[Tensor, " chosen"],
        value: Float[Tensor, "batch chosen m width"],
        slots: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch chosen m width"]:
        """What some heads of a layer put out for values at these slots."""
        matrices = at_slots(self.matrices[layer], heads, slots).to(value.dtype)
        return constant_product(matrices, value, real, dropout)

    def to(self, device: torch.device) -> ConstantMatrices:
        """Themselves on a device, to replace attention."""
        return replace(self, matrices=self.matrices.to(device), seen=self.seen.to(device))

    def save(self, folder: Address, encoder: EncoderReference, metadata: Mapping[str, Any]) -> None:
        """Publish the matrices as an artifact that names the encoder and S they belong to."""
        document = {
            **metadata,
            "kind": self.kind,
            "slots": self.slots,
            "encoder": {name: getattr(encoder, name) for name in ("name", "revision", "digest")},
        }
        # safetensors takes contiguous tensors only.
        tensors = {"matrices": self.matrices.contiguous(), "seen": self.seen}
        if self.counts is not None:
            tensors["counts"] = self.counts
        with published(folder, document) as scratch:
            save_file(tensors, scratch / FILE)

    @classmethod
    def load(
        cls,
        artifact: ArtifactReference | Address,
        *,
        encoder: EncoderReference | None = None,
        slots: int | None = None,
    ) -> ConstantMatrices:
        """Load and verify.

        Args:
            encoder: the encoder they shall serve; None skips the check.
            slots: the S they shall serve; None skips the check.

        Raises:
            ArtifactError: the artifact is damaged, or was made for another encoder or S.
        """
        path, metadata = verified(artifact, FILE) / FILE, read_metadata(artifact)
        # By digest, not name: a name may stand for other weights tomorrow.
        if encoder is not None and metadata["encoder"]["digest"] != encoder.digest:
            made_for = metadata["encoder"]
            raise ArtifactError(
                f"{path} was made for encoder {made_for['name']} ({made_for['digest'][:12]}), "
                f"this study uses {encoder.name} ({encoder.digest[:12]}): rerun 'average' for "
                "this encoder"
            )
        if slots is not None and metadata["slots"] != slots:
            raise ArtifactError(
                f"{path} was made for S={metadata['slots']}, this study uses S={slots}: rerun "
                f"'average' or set slots: {metadata['slots']}"
            )
        tensors = load_file(path)
        kind, counts = metadata["kind"], tensors.get("counts")
        return cls(matrices=tensors["matrices"], seen=tensors["seen"], kind=kind, counts=counts)


def control(
    kind: ConstantsKind, layers: int, heads: int, slots: int, **parameters: int
) -> ConstantMatrices:
    """Make a control of ``papa.attention.kinds``, the same for every layer."""
    function = resolve_name(CONTROLS[kind])
    if "heads" in inspect.signature(function).parameters:
        parameters["heads"] = heads
    matrix = torch.from_numpy(function(slots, **parameters)).float()
    return ConstantMatrices(
        matrices=matrix.expand(layers, heads, slots, slots).clone(),
        seen=torch.ones(slots, slots, dtype=torch.bool),
        kind=kind,
    )


def derived(
    kind: ConstantsKind, average: ConstantMatrices, special: Sequence[int], **parameters: int
) -> ConstantMatrices:
    """Make a kind of ``papa.attention.kinds`` from an average; ``special`` are the slots of [CLS]
    and [SEP].
    """
    assert average.counts is not None
    read = Averages(average.matrices.double().numpy(), average.counts.numpy(), special)
    matrices = torch.from_numpy(resolve_name(DERIVED[kind])(read, **parameters)).float()
    # Where a kind knows an entry that no input had, it counts as seen.
    seen = average.seen | (matrices > 0).any(dim=0).any(dim=0)
    return ConstantMatrices(matrices, seen, kind)


@dataclass(frozen=True)
class DistanceWeights:
    """A constant for each distance between two tokens, and for a text's ends wherever a token
    stands.

    Attributes:
        weights: r[layer, head, d], what a token takes from the one ``d`` before it; the middle
            entry is d = 0. A distance beyond the first or the last entry has that entry's.
        ends: weights of the first token, and of the last one in an encoder.
    """

    weights: Float[Tensor, "layers heads distances"]
    ends: Float[Tensor, "layers heads 2"]
    kind: ClassVar[str] = "relative by distance"

    @property
    def values(self) -> Tensor:
        return self.weights

    @property
    def reach(self) -> int:
        """The longest distance with a weight of its own."""
        return self.weights.shape[-1] // 2

    def to(self, device: torch.device) -> DistanceWeights:
        return replace(self, weights=self.weights.to(device), ends=self.ends.to(device))

    def table(self, layer: int, heads: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen places"]:
        """What ``places`` reads."""
        return torch.cat([self.ends[layer], self.weights[layer]], dim=-1)[heads]

    def seen_at(self, positions: Int[Tensor, " m"]) -> Bool[Tensor, "m m"]:
        """Whether any input of the average had two tokens as far apart; the first token always."""
        near = (positions[:, None] - positions).abs() <= self.reach
        return near | (positions == 0)

    def product(
        self,
        layer: int,
        heads: Int[Tensor, " chosen"],
        value: Float[Tensor, "batch chosen m width"],
        positions: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch chosen m width"]:
        """Rows on real tokens, divided by their sums, times V, without a matrix for each input.

        The last token stands at another place in each input, so it is a column of its own.
        """
        last = (real.sum(dim=1) - 1)[:, None]
        table = self.table(layer, heads).to(value.dtype)
        nowhere = positions.new_full((), -1)
        shared = table[:, places(positions[:, None], positions, nowhere, self.reach)]
        ends = table[:, 1, None, None].expand(-1, positions.shape[0], -1)
        at_end = last[:, None, :, None].expand(-1, value.shape[1], -1, value.shape[-1])
        return masked_product(
            torch.cat([shared, ends], dim=-1),
            torch.cat([value, value.gather(2, at_end)], dim=2),
            torch.cat([real & (positions != last), torch.ones_like(last, dtype=torch.bool)], dim=1),
        )


def places(
    queries: Int[Tensor, "..."], keys: Int[Tensor, "..."], last: Int[Tensor, "..."], reach: int
) -> Int[Tensor, "... queries keys"]:
    """Where in a table a pair of tokens finds its weight: the first token, the last, or a distance
    from the farthest ahead to the farthest behind, of which ``reach`` have places of their own.

    Positions have shapes that make a table of pairs; ``last`` is -1 where that token is not apart.
    """
    distances = (queries - keys).clamp(-reach, reach) + reach + APART
    return torch.where(keys == 0, 0, torch.where(keys == last, 1, distances))
