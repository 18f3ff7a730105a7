"""Samples of rows: pure functions of (rows there are, rows asked for, seed)."""

from __future__ import annotations

import numpy as np


def sampled_rows(count: int, rows: int | None, seed: int) -> np.ndarray:
    """The numbers of a sample of rows, drawn without repeats: int64 [min(rows, count)].

    A sample stands in the order in which it was drawn, so that a smaller one of the same seed is the start of a
    larger one. Where all rows are taken they keep their own order.

    Args:
        count: rows there are.
        rows: rows asked for; None takes all.
        seed: of the draw.
    """
    if rows is None or rows >= count:
        return np.arange(count)
    return np.random.default_rng(seed).permutation(count)[:rows]
