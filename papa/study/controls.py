"""Stage ``controls``: constant matrices that depend on no text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from papa.encoders.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ConstantsKind
from papa.study.step import Context, Session, WorkerStep, identity


@dataclass(frozen=True, eq=False)
class Controls(WorkerStep):
    """One of ``papa.spec.controls``, for every head of an encoder.

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

    def outside(self) -> dict[str, str]:
        return {"encoder": self.encoder.digest}

    def run(self, session: Session, progress: Progress) -> None:
        self.run_on_worker(session, progress, urgency=3)

    def compute(self, encoder: None, context: Context) -> None:
        from papa.attention.constants import control

        matrices = control(self.kind, self.encoder.layers, self.encoder.heads, self.slots)
        metadata = {**self.metadata({}), "shape": identity(self.encoder)}
        matrices.save(self.folder(context.store), self.encoder, metadata)
        context.progress(1, 1)
