"""Minibatches: in which order training rows are seen, and how a minibatch is cut into parts.

All are pure functions of (rows, epoch, seed). A permutation that all seeds share cuts an epoch into
windows of rows; inside a window each seed has its own order. So features can be computed a window
at a time and serve every seed, and training sees the same batches whether they are stored or not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from papa.text.corpus import TokenisedSplit

WINDOW_ROWS = 4096
WINDOW_BYTES = 4 * 2**30


def epoch_windows(rows: int, epoch: int, window: int) -> list[np.ndarray]:
    """The windows of an epoch: disjoint sets of rows, ascending, that together hold every row."""
    # Sequences of different lengths may hash alike where the longer one ends in zeros; the first
    # number distinguishes this from an order.
    shared = np.random.default_rng((0, epoch, 0)).permutation(rows)
    # Ascending within a window: its features are read from the disk in one direction.
    return [np.sort(shared[start : start + window]) for start in range(0, rows, window)]


def window_order(members: np.ndarray, epoch: int, seed: int, index: int) -> np.ndarray:
    """The rows of window number ``index`` in the order that ``seed`` sees them."""
    return np.random.default_rng((1, epoch, index, seed)).permutation(members)


def seed_of(*entropy: int) -> int:
    """A seed for a generator of PyTorch that follows from several numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def window_rows(rows: int, tokens: int, token_values: int, batch_size: int) -> int:
    """How many rows a window has: 4,096, fewer where their features, ``token_values`` = (L+1)·d for
    each of the split's ``tokens`` that a probe sees, would exceed 4 GiB in float32.

    It follows from corpus and encoder alone, so that what only affects speed leaves the order as it
    is. It is a multiple of ``batch_size``: only the last batch of an epoch can be short.
    """
    row_bytes = max(1, tokens * token_values * 4 // max(rows, 1))
    window = min(WINDOW_ROWS, max(1, WINDOW_BYTES // row_bytes))
    return max(batch_size, window - window % batch_size)


def part_tokens(on_gpu: bool) -> int:
    """About how many real tokens a part has at most."""
    return 4_096 if on_gpu else 256


class Part(NamedTuple):
    """Some rows of a minibatch, shortest first, computed in one forward and backward pass; their
    ``share`` of the terms of the minibatch's mean loss, with which the parts' losses add up, and
    that of its real tokens; and the seed of the encoder's dropout, where it is on.
    """

    rows: np.ndarray
    share: float
    token_share: float
    dropout_seed: int


def parts_of(
    split: TokenisedSplit, minibatch: np.ndarray, tokens: int, seed: tuple[int, ...]
) -> list[Part]:
    """Cut a minibatch into parts of like length and about equal ``tokens``, at most; those that
    have a label are given, shortest rows first. With a part's place ``seed`` gives that of its
    dropout.

    Their number is even, unless one is enough or rows are few.
    """
    index = split.index_of(minibatch)
    first, lengths = split.first_lengths[index], split.lengths[index]
    # What a mean loss is taken over: rows, or their labelled tokens.
    terms = split.probed_lengths[index] if split.label_per_token else np.ones_like(lengths)
    # As micro-batches are sorted: rows of like length share a part, so little of it is padding.
    order = np.lexsort((minibatch, lengths - first, first))
    ends = lengths[order].cumsum()
    count = -(-int(ends[-1]) // tokens)
    count = min(len(order), count + count % 2 if count > 1 else 1)
    # A row belongs to the part in which its middle lies.
    part = ((ends - lengths[order] / 2) * count // ends[-1]).astype(np.int64)
    pieces = [order[part == number] for number in range(count)]
    labelled = [piece for piece in pieces if terms[piece].any()]
    total = sum(int(lengths[piece].sum()) for piece in labelled)
    return [
        Part(
            minibatch[piece],
            int(terms[piece].sum()) / int(terms.sum()),
            int(lengths[piece].sum()) / total,
            seed_of(*seed, number),
        )
        for number, piece in enumerate(labelled)
    ]
