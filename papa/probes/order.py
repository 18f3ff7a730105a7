"""The order in which training rows are seen: pure functions of (rows, epoch, seed).

Rows are shuffled in windows. A permutation that all seeds share cuts an epoch into windows; inside a window
each seed has its own order. So features can be computed a window at a time and serve every seed, and
training sees the same batches whether features are stored or streamed.
"""

from __future__ import annotations

import numpy as np

WINDOW_ROWS = 4096
WINDOW_BYTES = 4 * 2**30


def epoch_windows(rows: int, epoch: int, window: int = WINDOW_ROWS) -> list[np.ndarray]:
    """The windows of an epoch: disjoint sets of rows that together hold every row once.

    Args:
        rows: rows in the split.
        epoch: 0, 1, …; every epoch cuts other windows.
        window: rows in a window; the last one may be smaller.

    Returns:
        int64 arrays, each ascending.
    """
    shared = _generator(0, epoch, 0).permutation(rows)
    return [np.sort(shared[start : start + window]) for start in range(0, rows, window)]


def window_order(members: np.ndarray, epoch: int, seed: int, index: int) -> np.ndarray:
    """The rows of window number ``index`` in the order that ``seed`` sees them."""
    return _generator(1, epoch, index, seed).permutation(members)


def epoch_order(rows: int, epoch: int, seed: int, window: int = WINDOW_ROWS) -> np.ndarray:
    """Every row once, in the order in which ``seed`` sees them in ``epoch``: int64 [rows]."""
    windows = epoch_windows(rows, epoch, window)
    ordered = [window_order(members, epoch, seed, index) for index, members in enumerate(windows)]
    return np.concatenate(ordered) if ordered else np.empty(0, dtype=np.int64)


def minibatches(rows: int, epoch: int, seed: int, window: int, batch_size: int) -> list[np.ndarray]:
    """The minibatches of an epoch as ``seed`` sees them, for training through the encoder, which needs no windows.

    Args:
        rows: rows in the split.
        epoch, seed: of the order.
        window: a multiple of ``batch_size``, from ``window_rows``.
        batch_size: rows in a minibatch; only the last can be short.
    """
    order = epoch_order(rows, epoch, seed, window)
    return [order[start : start + batch_size] for start in range(0, rows, batch_size)]


def seed_of(*entropy: int) -> int:
    """A seed for a generator of PyTorch that follows from several numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def window_rows(rows: int, tokens: int, token_values: int, batch_size: int) -> int:
    """Rows in a window: 4,096, fewer where their features would exceed 4 GiB in float32.

    A function of the corpus and the encoder alone, so that what only affects speed leaves the order as it
    is. It is a multiple of ``batch_size``: only the last batch of an epoch can be short.

    Args:
        rows: rows in the split.
        tokens: tokens of the split that the probe sees.
        token_values: numbers a token, (L+1)·d.
        batch_size: rows in a batch.
    """
    row_bytes = max(1, tokens * token_values * 4 // max(rows, 1))
    window = min(WINDOW_ROWS, max(1, WINDOW_BYTES // row_bytes))
    return max(batch_size, window - window % batch_size)


def _generator(*entropy: int) -> np.random.Generator:
    # Sequences of different lengths may hash alike where the longer one ends in zeros; the first number keeps
    # the two uses apart.
    return np.random.default_rng(np.random.SeedSequence(entropy))
