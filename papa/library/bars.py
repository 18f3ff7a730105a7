"""Progress bars in terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from papa.progress import Progress


@contextmanager
def bar(description: str, shown: bool) -> Iterator[Progress]:
    """A bar that what is called inside the block reports to; the variable ``TQDM_DISABLE=1`` hides all of them."""
    from tqdm.auto import tqdm

    # An argument would win over the variable, so it is only given to hide.
    with tqdm(desc=description, **({} if shown else {"disable": True})) as meter:

        def report(done: int, total: int) -> None:
            meter.total = total
            meter.update(done - meter.n)

        yield report
