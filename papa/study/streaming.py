"""Stages ``streaming`` and ``reused``, for comparison: a decoder's heads that see the first tokens
and the last, and heads that mix by A of the layer before.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from papa.study.step import Context, WorkerStep

if TYPE_CHECKING:
    from papa.ablation.substitutes import Substitute


@dataclass(frozen=True, eq=False)
class OnTheFly(WorkerStep):
    """What heads see; nothing is computed, so its artifact holds no more than its record."""

    version: ClassVar[int] = 1
    urgency: ClassVar[int] = 3

    parameters: Mapping[str, int]

    def spec(self) -> dict[str, Any]:
        return dict(self.parameters)

    def compute(self, encoder: None, context: Context) -> None:
        with context.published():
            context.progress(1, 1)

    @abstractmethod
    def substitute(self) -> Substitute:
        """What its heads put out."""


class Streamed(OnTheFly):
    """The first tokens, sinks, and the last, recent."""

    stage: ClassVar[str] = "streaming"

    def substitute(self) -> Substitute:
        from papa.ablation.substitutes import Streaming

        return Streaming(**self.parameters)


class ReusedBefore(OnTheFly):
    """What the same head of the layer before sees."""

    stage: ClassVar[str] = "reused"

    def substitute(self) -> Substitute:
        from papa.ablation.substitutes import Reused

        return Reused()
