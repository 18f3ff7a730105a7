"""Average matrices as a page holds them, one byte an entry, and those of chosen heads drawn."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float
from torch import Tensor

from papa.reporting.drawing import Figure
from papa.reporting.figures import matrices_figure
from papa.reporting.heads import Average
from papa.spec.orders import Head

MOST_ENTRIES = 2_400_000
"""Of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5 MB."""
MOST_ROWS = 160
"""Of one matrix: more are not told apart on a screen."""
_DRAWN_ROWS = 64
"""Of a matrix in a file, where each entry is a rectangle."""
UNSEEN, TOP = 255, 254
"""The levels of an entry that the average never saw, and of a matrix's largest."""


def paged(averages: Sequence[Average]) -> list[dict[str, Any]]:
    """The matrices of all encoders and tasks for a page: ``labels`` of rows, ``largest`` entries
    and ``levels``, uint8 [layers, heads, rows, rows] in base64. An entry is
    ``largest · (level / TOP)²``: the root keeps faint diagonals apart, and the error stays below
    0.4 % of the largest.

    Where they are too many for one page, a row stands for several slots.
    """
    for width in count(1):
        ranges = [_ranges(one, width) for one in averages]
        entries = sum(
            one.matrices.shape[:2].numel() * len(own) ** 2
            for one, own in zip(averages, ranges, strict=True)
        )
        if entries <= MOST_ENTRIES and all(len(own) <= MOST_ROWS for own in ranges):
            break
    return [_levels(one, own) for one, own in zip(averages, ranges, strict=True)]


def chosen_figure(average: Average) -> Figure:
    """The heads that show a pattern most: diagonal, [CLS], [SEP], and the least concentrated."""
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
    width = next(n for n in count(1) if len(_ranges(average, n)) <= _DRAWN_ROWS)
    labels, means = _means(average, _ranges(average, width))
    frames = [
        pandas.DataFrame(means[at].numpy(), index=labels, columns=labels)
        .rename_axis("from")
        .melt(var_name="to", value_name="weight", ignore_index=False)
        .reset_index()
        .assign(head=f"{name}: layer {at[0]}, head {at[1]}")
        for at, name in chosen.items()
    ]
    return matrices_figure(pandas.concat(frames), labels)


def _ranges(average: Average, width: int) -> list[tuple[int, int]]:
    """The seen slots, ``width`` neighbours together, as first and the one after the last; [CLS] and
    [SEP] keep rows of their own.
    """
    seen = average.counts > 0
    ranges: list[tuple[int, int]] = []
    for slot in (seen.any(dim=0) | seen.any(dim=1)).nonzero().flatten().tolist():
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
    first, *_ = average.special
    special = {slot: "[CLS]" if slot == first else "[SEP]" for slot in average.special}
    several = len(average.special) > 2
    labels = [
        f"{special[start]}{f' {start}' if several and start != first else ''}"
        if start in special
        else (str(start) if end == start + 1 else f"{start}–{end - 1}")
        for start, end in ranges
    ]
    return labels, sums / (groups @ seen @ groups.T)


def _levels(average: Average, ranges: Sequence[tuple[int, int]]) -> dict[str, Any]:
    labels, means = _means(average, ranges)
    known = means.nan_to_num()
    largest = known.amax(dim=(-2, -1))
    share = known.clamp(min=0) / largest.clamp(min=torch.finfo().tiny)[..., None, None]
    levels = (TOP * share.sqrt()).round().masked_fill(means.isnan(), UNSEEN).to(torch.uint8)
    return {
        "title": f"{average.encoder} · {average.task}",
        "labels": labels,
        "special": [row for row, (start, _) in enumerate(ranges) if start in average.special],
        "joined": max((end - start for start, end in ranges), default=1),
        "heads": means.shape[1],
        "largest": [float(f"{value:.6g}") for value in largest.flatten().tolist()],
        "levels": base64.b64encode(np.ascontiguousarray(levels.numpy()).tobytes()).decode(),
    }
