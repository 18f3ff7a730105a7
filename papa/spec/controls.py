"""The controls: constant matrices that depend on no text (paper, Section 5.2). An entry of
``CONTROLS`` adds a kind.

Specifications read the names, so this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "*heads slots slots"]


def identity(slots: int) -> Matrix:
    """Every token attends to itself alone."""
    return np.eye(slots)


def toeplitz(slots: int) -> Matrix:
    """Harmonic in distance: C[i, j] = 1 / (|i - j| + 1)."""
    positions = np.arange(slots)
    return 1.0 / (np.abs(positions[:, None] - positions) + 1)


def zeros(slots: int) -> Matrix:
    """The head's output is zero: pruned (Michel et al., 2019)."""
    return np.zeros((slots, slots))


def previous(slots: int) -> Matrix:
    """Every token attends to the slot before its own (Raganato et al., 2020)."""
    return np.eye(slots, k=-1)


def next_slot(slots: int) -> Matrix:
    """Every token attends to the slot after its own (Raganato et al., 2020)."""
    return np.eye(slots, k=1)


def local(slots: int, window: int = 2) -> Matrix:
    """Every token attends alike to all at most ``window`` slots away, itself among them."""
    positions = np.arange(slots)
    return (np.abs(positions[:, None] - positions) <= window).astype(float)


def fibonacci(slots: int, heads: int) -> Matrix:
    """Head h attends alike to the distances in row h + 1 of the Wythoff array, to either side, and
    to [CLS], which attends to all (Fibottention, Rahimian et al., 2024).

    Rows of that array are dilated Fibonacci sequences, 1 2 3 5 8 …, 4 7 11 18 …, 6 10 16 26 …,
    which share no number: no two heads attend to the same distance.
    """
    positions = np.arange(slots)
    distances = np.abs(positions[:, None] - positions)
    found = np.zeros((heads, slots, slots))
    golden = (1 + 5**0.5) / 2
    for head, matrix in enumerate(found):
        start = int((head + 1) * golden)
        lower, upper = int(start * golden), int(start * golden**2)
        while lower < slots:
            matrix[distances == lower] = 1
            lower, upper = upper, lower + upper
    found[:, 0] = found[:, :, 0] = 1
    return found


CONTROLS: dict[str, Callable[..., Matrix]] = {
    "identity": identity,
    "toeplitz": toeplitz,
    "zeros": zeros,
    "previous": previous,
    "next": next_slot,
    "local": local,
    "fibonacci": fibonacci,
}
"""Kind → C[i, j], what slot i takes from slot j before rows are masked and normalised: one matrix
for every head, or a matrix for each of ``heads``. Other arguments are keys of a study.
"""
