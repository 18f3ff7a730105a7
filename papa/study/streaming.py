"""Stage ``streaming``: a decoder's heads that see the first tokens and the last, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from papa.progress import Progress
from papa.study.step import Context, Session, WorkerStep

if TYPE_CHECKING:
    from papa.ablation.substitutes import Streaming


@dataclass(frozen=True, eq=False)
class Streamed(WorkerStep):
    """What heads see; nothing is computed, so its artifact holds no more than its record.

    Attributes:
        parameters: sinks and recent.
    """

    stage: ClassVar[str] = "streaming"
    version: ClassVar[int] = 1

    parameters: Mapping[str, int]

    def spec(self) -> dict[str, Any]:
        return dict(self.parameters)

    def run(self, session: Session, progress: Progress) -> None:
        self.run_on_worker(session, progress, urgency=3)

    def compute(self, encoder: None, context: Context) -> None:
        with context.published():
            context.progress(1, 1)

    def substitute(self) -> Streaming:
        """What its heads put out."""
        from papa.ablation.substitutes import Streaming

        return Streaming(**self.parameters)
