"""Constant matrices that know nothing of any text: the paper's controls (Section 5.2)."""

from __future__ import annotations

import torch

from papa.attention.constants import ConstantMatrices
from papa.spec import ConstantsKind


def identity(layers: int, heads: int, slots: int) -> ConstantMatrices:
    """Every token takes from itself alone."""
    return _everywhere("identity", torch.eye(slots), layers, heads)


def toeplitz(layers: int, heads: int, slots: int) -> ConstantMatrices:
    """Harmonic in distance: C[i, j] = 1 / (|i - j| + 1)."""
    positions = torch.arange(slots)
    distance = (positions[:, None] - positions).abs()
    return _everywhere("toeplitz", 1.0 / (distance + 1), layers, heads)


def zeros(layers: int, heads: int, slots: int) -> ConstantMatrices:
    """The head puts out nothing: pruned (Michel et al., 2019)."""
    return _everywhere("zeros", torch.zeros(slots, slots), layers, heads)


CONTROLS = {"identity": identity, "toeplitz": toeplitz, "zeros": zeros}


def _everywhere(kind: ConstantsKind, matrix: torch.Tensor, layers: int, heads: int) -> ConstantMatrices:
    slots = matrix.shape[0]
    return ConstantMatrices(
        matrices=matrix.float().repeat(layers, heads, 1, 1),
        seen=torch.ones(slots, slots, dtype=torch.bool),
        kind=kind,
    )
