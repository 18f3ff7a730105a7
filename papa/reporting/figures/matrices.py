"""Constant matrices of chosen heads as heat maps, and the choice of heads to show (paper, Figure 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from jaxtyping import Bool, Float
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from papa.attention.patterns import HeadPatterns
from papa.reporting.figures.canvas import styled


@dataclass(frozen=True)
class HeadMatrix:
    """One head's constant matrix and its title in the figure.

    Attributes:
        title: such as ``BERT, layer 3, head 5``.
        matrix: rows: the slot that attends; columns: the slot attended to; NaN where never seen.
    """

    title: str
    matrix: Float[numpy.ndarray, "slots slots"]


def matrices_figure(heads: Sequence[HeadMatrix]) -> Figure:
    """Heat maps side by side, four per row, on one colour scale; brightness follows the square root.

    Slots that no matrix has ever seen are left out; the ticks name the slots that are there.
    """
    columns = min(len(heads), 4)
    rows = math.ceil(len(heads) / columns)
    largest = max(float(numpy.nanmax(head.matrix, initial=0.0)) for head in heads)
    with styled():
        figure = Figure(figsize=(2.9 * columns + 0.6, 3.0 * rows + 0.2))
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, head in zip(panels, heads, strict=False):
            seen = numpy.flatnonzero(~numpy.isnan(head.matrix).all(axis=1))
            # Averages are small nearly everywhere: the square root keeps faint diagonals visible.
            scale = PowerNorm(0.5, 0.0, largest or 1.0)
            image = panel.imshow(head.matrix[numpy.ix_(seen, seen)], norm=scale, interpolation="nearest")
            panel.set_title(head.title, fontsize=9)
            panel.grid(False)
            ticks = numpy.unique(numpy.linspace(0, len(seen) - 1, 6).round().astype(int))
            panel.set_xticks(ticks, seen[ticks])
            panel.set_yticks(ticks, seen[ticks])
            panel.set_xlabel("slot attended to", fontsize=8)
            panel.set_ylabel("slot attending", fontsize=8)
            panel.tick_params(labelsize=7)
        for empty in panels[len(heads) :]:
            empty.set_visible(False)
        figure.colorbar(image, ax=list(panels), shrink=0.8, label="attention weight")
    return figure


def example_heads(
    matrices: Float[Tensor, "layers heads slots slots"],
    seen: Bool[Tensor, "slots slots"],
    patterns: HeadPatterns,
) -> list[HeadMatrix]:
    """The heads that show a pattern most: diagonal, [CLS], [SEP], and the least concentrated one.

    A head that leads in two of them is shown once. Titles count layers and heads from 0, as head orders do.

    Args:
        matrices: C, not normalised.
        seen: which pairs of slots the average covers.
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
            title=f"{name}: layer {layer}, head {head}",
            matrix=matrices[layer, head].where(seen, torch.tensor(math.nan)).numpy(),
        )
        for (layer, head), name in heads.items()
    ]
