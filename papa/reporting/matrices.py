"""Average matrices as a page holds them, one byte an entry, and those of chosen heads drawn."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float
from torch import Tensor

from papa.reporting.drawing import Figure, Spec
from papa.reporting.figures import figure
from papa.reporting.heads import Average, pattern
from papa.spec.orders import Head

MOST_ENTRIES = 2_400_000
"""Of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5 MB."""
MOST_ROWS = 160
"""Of one matrix: more are not told apart on a screen."""
_DRAWN_ROWS = 64
"""Of a matrix in a file, where each entry is a rectangle."""
UNSEEN, TOP = 255, 254
"""The levels of an entry that the average never saw, and of a matrix's largest."""


def matrix(labels: Sequence[str]) -> Spec:
    """One matrix of the frame ``entries``: from, to, weight; ``labels`` are the slots' names."""
    every = max(1, len(labels) // 8)
    named = [name for at, name in enumerate(labels) if not name.isdigit() or at % every == 0]
    axis = {"values": named, "labelOverlap": "greedy"}
    place = {"type": "ordinal", "sort": list(labels), "axis": axis}
    colour = {"field": "weight", "type": "quantitative", "title": "mean attention"}
    encoding = {
        "x": {"field": "to", "title": "slot attended to", **place},
        "y": {"field": "from", "title": "slot that attends", **place},
        "color": {**colour, "scale": {"type": "sqrt", "scheme": "cividis"}},
    }
    mark = {"type": "rect", "tooltip": {"content": "data"}}
    return {"width": 200, "height": 200, "mark": mark, "encoding": encoding}


def paged(averages: Sequence[Average]) -> list[dict[str, Any]]:
    """The matrices of all encoders and tasks for a page: ``labels`` of rows, ``largest`` entries
    and ``levels``, uint8 [layers, heads, rows, rows] in base64. An entry is
    ``largest · (level / TOP)²``: the root keeps faint diagonals apart, and the error stays below
    0.4 % of the largest.

    Where they are too many for one page, a row stands for several slots.
    """
    heads = sum(one.matrices.shape[:2].numel() for one in averages)
    rows = min(MOST_ROWS, math.isqrt(MOST_ENTRIES // heads)) if heads else 0
    return [_levels(one, _ranges(one, rows)) for one in averages]


def chosen_figure(average: Average) -> Figure:
    """The heads that show a pattern most: diagonal, [CLS], [SEP], and the least concentrated; on
    one colour scale (paper, Figure 4).
    """
    patterns = average.patterns
    strengths = {
        "diagonal": patterns.diagonal_mass,
        "[CLS]": patterns.cls_mass,
        "[SEP]": patterns.sep_mass,
        "spread": -patterns.largest_entry,
    }
    chosen: dict[Head, str] = {}
    for name, strength in strengths.items():
        chosen.setdefault(divmod(int(strength.argmax()), strength.shape[1]), name)
    labels, means = _means(average, _ranges(average, _DRAWN_ROWS))
    frames = [
        pandas.DataFrame(means[at].numpy(), index=labels, columns=labels)
        .rename_axis("from")
        .melt(var_name="to", value_name="weight", ignore_index=False)
        .reset_index()
        .assign(head=f"{name}: layer {at[0]}, head {at[1]}")
        for at, name in chosen.items()
    ]
    facet = {"field": "head", "type": "nominal", "title": None, "sort": None}
    body = {"facet": facet, "columns": 4, "spec": matrix(labels)}
    title = "Constant matrices of chosen heads."
    return figure("matrices", title, "entries", pandas.concat(frames), body)


def _ranges(average: Average, most: int) -> list[tuple[int, int]]:
    """The seen slots as first and the one after the last, so many neighbours together that there
    are about ``most``; [CLS] and [SEP] keep rows of their own.
    """
    seen = average.counts > 0
    slots = (seen.any(dim=0) | seen.any(dim=1)).nonzero().flatten().tolist()
    width, ranges = math.ceil(len(slots) / most), list[tuple[int, int]]()
    for slot in slots:
        start, end = ranges[-1] if ranges else (-1, -1)
        if end == slot and end - start < width and not {slot, start} & set(average.special):
            ranges[-1] = (start, slot + 1)
        else:
            ranges.append((slot, slot + 1))
    return ranges


def _means(
    average: Average, ranges: Sequence[tuple[int, int]]
) -> tuple[list[str], Float[Tensor, "layers heads rows rows"]]:
    """The names of rows, and the mean of the entries seen; nan where none was."""
    seen = (average.counts > 0).float()
    groups = torch.zeros(len(ranges), len(seen))
    for row, (start, end) in enumerate(ranges):
        groups[row, start:end] = 1
    sums = groups @ (average.matrices.float() * seen) @ groups.T
    first, *others = average.special
    special = {slot: f"[SEP] {slot}" if others[1:] else "[SEP]" for slot in others}
    special[first] = "[CLS]"
    labels = [
        special.get(start, str(start) if end == start + 1 else f"{start}–{end - 1}")
        for start, end in ranges
    ]
    return labels, sums / (groups @ seen @ groups.T)


def _levels(average: Average, ranges: Sequence[tuple[int, int]]) -> dict[str, Any]:
    labels, means = _means(average, ranges)
    known = means.nan_to_num()
    largest = known.amax(dim=(-2, -1))
    share = known.clamp(min=0) / largest.clamp(min=torch.finfo().tiny)[..., None, None]
    levels = (TOP * share.sqrt()).round().masked_fill(means.isnan(), UNSEEN).to(torch.uint8)
    patterns = average.patterns
    return {
        "title": f"{average.encoder} · {average.task}",
        "labels": labels,
        "special": [row for row, (start, _) in enumerate(ranges) if start in average.special],
        "heads": means.shape[1],
        "patterns": [pattern(patterns, at) for at in np.ndindex(*largest.shape)],
        "largest": [float(f"{value:.6g}") for value in largest.flatten().tolist()],
        "levels": base64.b64encode(np.ascontiguousarray(levels.numpy()).tobytes()).decode(),
    }
