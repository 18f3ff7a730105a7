"""The controls: constant matrices that depend on no text (paper, Section 5.2). An entry of
``CONTROLS`` adds a kind.

Specifications read the names, so this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "slots slots"]


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


CONTROLS: dict[str, Callable[[int], Matrix]] = {
    "identity": identity,
    "toeplitz": toeplitz,
    "zeros": zeros,
}
"""Kind → C[i, j], what slot i takes from slot j before rows are masked and normalised; one matrix
for every head.
"""
