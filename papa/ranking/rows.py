"""Which rows a ranking seed sees."""

from __future__ import annotations

import numpy as np


def rows_of_seed(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of the rows on which a ranking seed scores heads: int64 [min(rows, count)].

    Seeds take one part after another of an order of all rows, as many as it has, then of the next
    order: seeds of one order have no row in common.
    """
    if (order := order_of_rows(count, rows, seed)) is None or rows is None:
        return np.arange(count)
    part = seed % (count // rows)
    return np.random.default_rng(order).permutation(count)[part * rows : (part + 1) * rows]


def order_of_rows(count: int, rows: int | None, seed: int) -> int | None:
    """Which order ``rows_of_seed`` takes a part of; None where it takes all rows."""
    return None if rows is None or rows >= count else seed // (count // rows)
