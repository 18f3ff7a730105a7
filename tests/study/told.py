"""A reporter of steps that keeps what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from papa.progress import Progress, ignore_progress


@dataclass
class Told:
    """What ran and what was damaged, by name; nothing waits and nothing is tried again."""

    ran: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, name: str) -> Iterator[Progress]:
        self.ran.append(name)
        yield ignore_progress

    def told(self, name: str, sentence: str) -> None:
        assert sentence.startswith("made again: ")
        self.damages.append(name)
