"""How work reports how far it is, and how well a probe learns; bars in terminals and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Progress = Callable[[int, int], None]
"""Called with (done, total), in units of the caller's choosing."""

OnEpoch = Callable[[int, Mapping[int, float]], None]
"""Called after each epoch with its number, from 1, and each seed's mean training loss."""


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def ignore_epoch(epoch: int, losses: Mapping[int, float]) -> None:
    """Tell nobody of losses."""


@runtime_checkable
class Reporter(Protocol):
    """Shows which steps of a study run."""

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """Show a step while the block runs; yields its progress."""

    def told(self, name: str, sentence: str) -> None:
        """Show a sentence about a step."""


@contextmanager
def bar(description: str, shown: bool) -> Iterator[Progress]:
    """A bar that calls inside the block report to; ``TQDM_DISABLE=1`` hides all of them."""
    from tqdm.auto import tqdm

    # An argument would win over the variable, so it is only given to hide.
    with tqdm(desc=description, **({} if shown else {"disable": True})) as meter:

        def report(done: int, total: int) -> None:
            meter.total = total
            meter.update(done - meter.n)

        yield report


@dataclass(frozen=True)
class Bars:
    """A reporter of steps: a bar for each that runs."""

    shown: bool

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """A bar while the block runs."""
        return bar(name, self.shown)

    def told(self, name: str, sentence: str) -> None:
        """A line."""
        from tqdm.auto import tqdm

        if self.shown:
            tqdm.write(f"{name}: {sentence}")
