"""Substitutes, each with the attention [batch, heads, S, S] that it stands for."""

from collections.abc import Callable

import torch
from torch import Tensor

from papa.heads.substitutes import Mixed, Streaming
from tests.models.inputs import SLOTS

EXACT = 1e-5
LAYERS = 3
HEADS = 4
DRAWN = torch.Generator().manual_seed(2)
MATRICES = torch.rand(LAYERS, HEADS, SLOTS, SLOTS, generator=DRAWN)
ALPHA = torch.rand(LAYERS, HEADS, generator=DRAWN, dtype=torch.float64)


def normalised(matrices: Tensor) -> Tensor:
    return matrices / matrices.sum(dim=-1, keepdim=True).clamp(min=1e-300)


def near(attention: Tensor, sinks: int, recent: int) -> Tensor:
    columns = torch.arange(attention.shape[-1])
    visible = (columns < sinks) | ((columns[:, None] - columns).abs() < recent)
    return normalised(attention * visible)


def constant(layer: int, attention: Tensor) -> Tensor:
    size = attention.shape[-1]
    return normalised(MATRICES[layer, :, :size, :size] * (attention > 0))


def duo(layer: int, attention: Tensor) -> Tensor:
    """DuoAttention's forward pass in two ways: α of the full attention, the rest restricted."""
    alpha = ALPHA[layer][:, None, None]
    return alpha * attention + (1 - alpha) * near(attention, 2, 4)


LAWS: dict[str, tuple[object, Callable[[int, Tensor], Tensor]]] = {
    "zeros": ("zeros", lambda layer, attention: torch.zeros_like(attention)),
    "constants": (MATRICES, constant),
    "local": (
        {"kind": "local", "window": 1},
        lambda layer, attention: near(attention.sign(), 0, 2),
    ),
    "first": (
        "first",
        lambda layer, attention: torch.eye(attention.shape[-1])[0] * (attention > 0),
    ),
    "streaming": (Streaming(1, 3), lambda layer, attention: near(attention, 1, 3)),
    "duo": (Mixed(Streaming(2, 4), ALPHA), duo),
}
