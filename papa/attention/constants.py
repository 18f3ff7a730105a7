"""Constant matrices: what an encoder's attention is replaced by (paper, Sections 3.1 and 5.2)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from papa.attention.kinds import Averages
from papa.attention.product import at_slots, constant_product
from papa.attention.substitutes import Weights, read_at
from papa.encoders.dispatch import Heads, LayerAttention, at_least_single, chosen, indices
from papa.encoders.reference import EncoderReference
from papa.errors import ArtifactError, DataError
from papa.spec import ConstantsKind
from papa.spec.constants import CONTROLS, DERIVED
from papa.storage.artifacts import Address, check_form, published, reading, reference, verify

FILE = "constants.safetensors"


@dataclass(frozen=True)
class ConstantMatrices(Weights):
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

    def rows(self, part: LayerAttention, layer: int, heads: Heads) -> Tensor:
        if part.longest > self.slots:
            raise DataError(
                f"a text has {part.longest} tokens and the constant matrices have {self.slots} "
                'slots: cut it, or take matrices for more slots or by="relative", which has no '
                "limit"
            )
        matrices = self.matrices[layer].to(part.value.device)
        return read_at(matrices[indices(heads, matrices.device)], part)

    def output(self, attention: LayerAttention, layer: int, heads: Heads) -> Tensor:
        batch = attention.batch
        if batch is None:
            return super().output(attention, layer, heads)
        value = at_least_single(chosen(attention.value, heads))
        own = indices(heads, value.device)
        matrices = at_slots(self.matrices[layer], own, batch.columns).to(value.dtype)
        real = None if batch.dense else batch.attention_mask
        return constant_product(matrices, value, real, attention.dropout)

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
        cls, folder: Path, *, encoder: EncoderReference | None = None, slots: int | None = None
    ) -> ConstantMatrices:
        """Load and verify.

        Args:
            encoder: the encoder they shall serve; None skips the check.
            slots: the S they shall serve; None skips the check.

        Raises:
            ArtifactError: the artifact is damaged, or was made for another encoder or S.
        """
        path = reference(folder).folder / FILE
        with reading(folder):
            metadata = verify(folder, FILE)
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
            try:
                tensors = load_file(path)
            except (OSError, SafetensorError) as error:
                raise ArtifactError(
                    f"{path} cannot be read ({error}): delete {folder} and run again"
                ) from None
            shape = tuple(tensors["matrices"].shape)
            of = shape[:2] if encoder is None else (encoder.layers, encoder.heads)
            square = (metadata["slots"], metadata["slots"])
            seen = tensors["seen"]
            check_form(
                matrices=((shape, tensors["matrices"].dtype), ((*of, *square), torch.float32)),
                seen=((tuple(seen.shape), seen.dtype), (square, torch.bool)),
                counts=(tuple(tensors.get("counts", seen).shape), square),
            )
            kind, counts = metadata["kind"], tensors.get("counts")
            return cls(matrices=tensors["matrices"], seen=seen, kind=kind, counts=counts)


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
