"""Stage ``controls``: constant matrices that depend on no text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ConstantsKind
from papa.storage.artifacts import Address
from tasks.step import Session, Step, identity


@dataclass(frozen=True)
class Controls(Step):
    """One of ``papa.attention.controls``, for every head of an encoder.

    Attributes:
        encoder: whose heads.
        kind: which control.
        slots: S.
    """

    stage: ClassVar[str] = "controls"
    version: ClassVar[int] = 1

    encoder: EncoderReference
    kind: ConstantsKind
    slots: int

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "slots": self.slots}

    def upstream(self) -> dict[str, str | None]:
        return {"encoder": self.encoder.digest}

    def run(self, session: Session, progress: Progress) -> None:
        session.pool.run(
            publish_control,
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


def publish_control(
    *,
    encoder_reference: EncoderReference,
    kind: str,
    slots: int,
    folder: Address,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish one kind of control matrices at ``folder``."""
    from papa.attention.constants import control

    matrices = control(kind, encoder_reference.layers, encoder_reference.heads, slots)
    matrices.save(folder, encoder_reference, metadata)
    progress(1, 1)
