"""Stage ``controls``: constant matrices that know nothing of any text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.storage.artifacts import Address
from tasks.step import Session, Step, identity


@dataclass(frozen=True)
class Controls(Step):
    """Identity, Toeplitz or zeros, for every head of an encoder.

    Attributes:
        encoder: whose heads.
        kind: which control.
        slots: S.
    """

    stage: ClassVar[str] = "controls"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    kind: Literal["identity", "toeplitz", "zeros"]
    slots: int

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "slots": self.slots}

    def upstream(self) -> dict[str, str | None]:
        return {"encoder": self.encoder.digest}

    def run(self, session: Session, progress: Progress) -> None:
        session.pool.run(
            control,
            arguments={
                "encoder_reference": self.encoder,
                "kind": self.kind,
                "slots": self.slots,
                "folder": self.folder(session.store),
                "metadata": {**self.metadata(), "shape": identity(self.encoder)},
            },
            progress=progress,
            urgency=3,
        )


def control(
    *,
    encoder_reference: EncoderReference,
    kind: str,
    slots: int,
    folder: Address,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish one kind of control matrices at ``folder``."""
    from papa.attention.constants import CONTROLS

    matrices = CONTROLS[kind](encoder_reference.layers, encoder_reference.heads, slots)
    matrices.save(folder, encoder_reference, metadata)
    progress(1, 1)
