"""Large libraries imported without garbage collection: their million objects all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected while the block runs, and what it made is never looked at again.

    A fifth of the time of an import, and most of that in which a process ends, goes into such
    looks.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
