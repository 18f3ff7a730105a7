"""How work reports how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, total), in units of the caller's choosing."""


def silent(done: int, total: int) -> None:
    """Report to nobody."""
