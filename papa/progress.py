"""How work reports how far it is, and how well a probe learns."""

from collections.abc import Callable, Mapping

Progress = Callable[[int, int], None]
"""Called with (done, total), in units of the caller's choosing."""

OnEpoch = Callable[[int, Mapping[int, float]], None]
"""Called after each epoch with its number, from 1, and each seed's mean training loss."""


def ignore_progress(done: int, total: int) -> None:
    """Report to nobody."""


def ignore_epoch(epoch: int, losses: Mapping[int, float]) -> None:
    """Tell nobody of losses."""
