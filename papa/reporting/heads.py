"""Heads worth showing."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.patterns import HeadPatterns
from papa.reporting.figures import HeadMatrix


def example_heads(
    matrices: Float[Tensor, "layers heads slots slots"],
    seen: Bool[Tensor, "slots slots"],
    patterns: HeadPatterns,
) -> list[HeadMatrix]:
    """The heads that show a pattern most: diagonal, [CLS], [SEP], and the least concentrated one.

    A head that leads in two of them is shown once. Titles count layers and heads from 1.

    Args:
        matrices: C, not normalised.
        seen: which pairs of slots the average met.
        patterns: of the same matrices.
    """
    wanted = {
        "diagonal": patterns.diagonal_mass,
        "[CLS]": patterns.cls_mass,
        "[SEP]": patterns.sep_mass,
        "spread": -patterns.largest_entry,
    }
    heads: dict[tuple[int, int], str] = {}
    for name, strength in wanted.items():
        best = int(strength.argmax())
        heads.setdefault(divmod(best, strength.shape[1]), name)
    return [
        HeadMatrix(
            title=f"{name}: layer {layer + 1}, head {head + 1}",
            matrix=matrices[layer, head].where(seen, torch.tensor(math.nan)).numpy(),
        )
        for (layer, head), name in heads.items()
    ]
