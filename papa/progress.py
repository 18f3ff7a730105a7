"""Progress of work and of training, and its bars in terminals and notebooks."""

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
    """Report losses to nobody."""


@runtime_checkable
class Reporter(Protocol):
    """Shows which steps of a study run."""

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """Show a step while the block runs; yields its progress."""

    def note(self, name: str, sentence: str) -> None:
        """Show a sentence about a step."""


@contextmanager
def bar(description: str, shown: bool, unit: str = "it") -> Iterator[Progress]:
    """Yield a progress function that moves a bar; ``TQDM_DISABLE=1`` hides all bars. ``unit`` is
    what progress counts, "it" where nobody knows.
    """
    # Most commands have no bar.
    from tqdm.auto import tqdm

    # An argument, also of False, would win over the variable.
    hidden = {} if shown else {"disable": True}
    meter = tqdm(desc=description, unit=f" {unit}", **hidden)
    with meter:

        def report(done: int, total: int) -> None:
            meter.total = total
            meter.update(done - meter.n)

        yield report


@dataclass(frozen=True)
class Bars:
    """A reporter that shows a bar for each running step."""

    shown: bool

    def running(self, name: str) -> AbstractContextManager[Progress]:
        """Show a bar while the block runs."""
        return bar(name, self.shown)

    def note(self, name: str, sentence: str) -> None:
        """Print a line."""
        from tqdm.auto import tqdm

        if self.shown:
            tqdm.write(f"{name}: {sentence}")
