"""The matrices of kinds of constants that depend on no text (paper, Section 5.2), or on an average.

A control gives C[i, j], what slot i takes from slot j, not masked or normalised.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Matrix = Float[np.ndarray, "*heads slots slots"]


def _distances(slots: int) -> Int[np.ndarray, "slots slots"]:
    return np.abs(np.subtract.outer(np.arange(slots), np.arange(slots)))


def identity(slots: int) -> Matrix:
    """Return matrices by which every token attends to itself alone."""
    return np.eye(slots)


def toeplitz(slots: int) -> Matrix:
    """Return matrices that fall with distance: C[i, j] = 1 / (|i - j| + 1)."""
    return 1.0 / (_distances(slots) + 1)


def zeros(slots: int) -> Matrix:
    """Return zeros: the head outputs zero, as if it were pruned (Michel et al., 2019)."""
    return np.zeros((slots, slots))


def first(slots: int) -> Matrix:
    """Return matrices by which every token attends to the first slot alone (Penzai's knock-out)."""
    return np.eye(slots)[:1].repeat(slots, axis=0)


def previous(slots: int) -> Matrix:
    """Return matrices by which every token attends to the slot before it (Raganato et al.,
    2020).
    """
    return np.eye(slots, k=-1)


def next_slot(slots: int) -> Matrix:
    """Return matrices by which every token attends to the slot after it (Raganato et al., 2020)."""
    return np.eye(slots, k=1)


def local(slots: int, window: int = 2) -> Matrix:
    """Return matrices by which every token attends equally to all slots at most ``window`` away,
    itself included.
    """
    return (_distances(slots) <= window).astype(float)


def fibonacci(slots: int, heads: int) -> Matrix:
    """Return matrices by which head h attends equally to the distances in row h + 1 of the Wythoff
    array, and to [CLS], which attends to all slots (Fibottention, Rahimian et al., 2024); no two
    heads share a distance.
    """
    distances = _distances(slots)
    golden = (1 + 5**0.5) / 2
    matrices = np.zeros((heads, slots, slots))
    for head, matrix in enumerate(matrices):
        start = int((head + 1) * golden)
        distance = int(start * golden)
        following = int(start * golden**2)
        while distance < slots:
            matrix[distances == distance] = 1
            distance, following = following, distance + following
    matrices[:, 0] = matrices[:, :, 0] = 1
    return matrices


class Averages(NamedTuple):
    """C of all heads, in how many inputs both slots held a token, the slots of [CLS] and [SEP]."""

    matrices: Float[np.ndarray, "layers heads slots slots"]
    counts: Float[np.ndarray, "slots slots"]
    special: Sequence[int]


def low_rank(average: Averages, rank: int = 4, largest: int = 0) -> Matrix:
    """Return the best approximation of C of rank ``rank`` (Eckart and Young, 1936), in which the
    ``largest`` largest entries of C are exact. Entries below 0 become 0.
    """
    left, sizes, right = np.linalg.svd(average.matrices)
    product = (left[..., :rank] * sizes[..., None, :rank]) @ right[..., :rank, :]
    approximated = product.reshape(*product.shape[:2], -1)
    if largest:
        exact = average.matrices.reshape(approximated.shape)
        entries = np.argpartition(-exact, largest - 1, axis=-1)[..., :largest]
        largest_values = np.take_along_axis(exact, entries, axis=-1)
        np.put_along_axis(approximated, entries, largest_values, axis=-1)
    return approximated.clip(min=0).reshape(product.shape)


def relative(average: Averages) -> Matrix:
    """Return the mean of A over pairs of tokens at one distance; columns and rows of [CLS] and
    [SEP], and diagonals between two texts, have means of their own. A distance that no input had
    keeps 0.
    """
    slots = np.arange(len(average.counts))
    special = np.zeros(len(slots), dtype=int)
    special[list(average.special)] = 1 + np.arange(len(average.special))
    text_numbers = np.searchsorted(average.special, slots)
    text = (special[:, None] == 0) & (special == 0)
    distances = np.where(text, slots[:, None] - slots, 0)
    across = text & (text_numbers[:, None] != text_numbers)
    rows, columns = np.broadcast_arrays(special[:, None], special)
    kinds = np.stack([rows, columns, distances, across], axis=-1).reshape(-1, 4)
    group = np.unique(kinds, axis=0, return_inverse=True)[1].ravel()
    counts = np.bincount(group, average.counts.ravel()).clip(min=1)
    means = np.empty(average.matrices.shape)
    for head in np.ndindex(means.shape[:2]):
        sums = np.bincount(group, (average.matrices[head] * average.counts).ravel())
        means[head] = (sums / counts)[group].reshape(average.counts.shape)
    return means
