"""Switch garbage collection off during imports."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch garbage collection off while the block imports large libraries, and never look at what
    it created again. The million objects of an import all stay: a fifth of its time, and most of
    that in which a process ends, goes into such looks.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
