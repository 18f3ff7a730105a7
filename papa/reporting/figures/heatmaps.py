"""Constant matrices as small images that carry their values: a page reads entries back."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy
import torch
import vl_convert
from jaxtyping import Float, UInt8
from PIL import Image

from papa.reporting.heads import HeadsOfEncoder

MOST_ENTRIES = 2_400_000
"""Of all matrices on one page: 12 × 12 heads of 128 × 128 slots stay below 5 MB."""
MOST_ROWS = 160
"""Of one matrix: more are not told apart on a screen."""
UNSEEN = 255
"""The level of an entry that the average never saw."""
TOP = 254
"""The level of a matrix's largest entry."""

SlotRange = tuple[int, int]
"""First slot and the one after the last."""


@dataclass(frozen=True)
class HeatMaps:
    """The matrices of one encoder on one task, quantised.

    An entry's value is ``largest[layer, head] · (level / TOP)²``: the square root keeps faint
    diagonals apart, and the error stays below 0.4 % of the matrix's largest entry.

    Attributes:
        ranges: the slots of each row and column; slots that the average never saw are left out.
        special: the rows of [CLS] and [SEP], and which of the two.
        levels: 0..TOP, or UNSEEN.
        largest: the largest entry of each matrix.
    """

    ranges: tuple[SlotRange, ...]
    special: Mapping[int, str]
    levels: UInt8[numpy.ndarray, "layers heads rows rows"]
    largest: Float[numpy.ndarray, "layers heads"]

    @property
    def labels(self) -> list[str]:
        """The slots of each row in words: ``[CLS]``, ``17``, ``17–18``."""
        return [
            self.special.get(row) or (str(start) if end == start + 1 else f"{start}–{end - 1}")
            for row, (start, end) in enumerate(self.ranges)
        ]

    def png(self, layer: int, head: int) -> bytes:
        """One matrix as a PNG of one byte a pixel, the level; its palette is the colour map."""
        return level_image(self.levels[layer, head])


def level_image(levels: UInt8[numpy.ndarray, "rows rows"]) -> bytes:
    """Levels as a PNG of one byte a pixel; its palette is the colour map, unseen is transparent."""
    image = Image.fromarray(levels, mode="P")
    image.putpalette(_palette())
    buffer = io.BytesIO()
    image.save(buffer, format="png", compress_level=9, transparency=UNSEEN)
    return buffer.getvalue()


@cache
def _palette() -> list[int]:
    """Red, green and blue of the levels 0 to TOP as Vega draws them in a heat map, and grey."""
    fill = {"scale": "colours", "field": "data"}
    specification = {
        "$schema": "https://vega.github.io/schema/vega/v6.json",
        "data": [{"name": "levels", "values": list(range(TOP + 1))}],
        "scales": [
            {
                "name": "colours",
                "type": "linear",
                "domain": [0, TOP],
                "range": {"scheme": "cividis"},
            }
        ],
        "marks": [
            {"type": "rect", "from": {"data": "levels"}, "encode": {"enter": {"fill": fill}}}
        ],
    }
    fills = re.findall(
        r"rgb\((\d+), (\d+), (\d+)\)", json.dumps(vl_convert.vega_to_scenegraph(specification))
    )
    return [*(int(part) for fill in fills for part in fill), 128, 128, 128]


def heat_maps(sets: Sequence[HeadsOfEncoder]) -> list[HeatMaps]:
    """Quantise the matrices of all encoders and tasks.

    Where they are too many for one page, one row stands for several slots and an entry for the mean
    of those seen; [CLS] and [SEP] keep rows of their own.
    """
    width = 1
    while True:
        ranges = [_ranges(heads, width) for heads in sets]
        entries = sum(
            heads.matrices.shape[:2].numel() * len(own) ** 2
            for heads, own in zip(sets, ranges, strict=True)
        )
        if entries <= MOST_ENTRIES and all(len(own) <= MOST_ROWS for own in ranges):
            return [_quantised(heads, own) for heads, own in zip(sets, ranges, strict=True)]
        width += 1


def _ranges(heads: HeadsOfEncoder, width: int) -> tuple[SlotRange, ...]:
    """The seen slots, ``width`` neighbours together."""
    seen = (heads.seen.any(dim=0) | heads.seen.any(dim=1)).tolist()
    ranges: list[SlotRange] = []
    for slot in (slot for slot, is_seen in enumerate(seen) if is_seen):
        start, end = ranges[-1] if ranges else (-1, -1)
        if (
            end == slot
            and end - start < width
            and slot not in heads.special
            and start not in heads.special
        ):
            ranges[-1] = (start, slot + 1)
        else:
            ranges.append((slot, slot + 1))
    return tuple(ranges)


def _quantised(heads: HeadsOfEncoder, ranges: tuple[SlotRange, ...]) -> HeatMaps:
    groups = torch.zeros(len(ranges), heads.seen.shape[0])
    for row, (start, end) in enumerate(ranges):
        groups[row, start:end] = 1
    counts = groups @ heads.seen.float() @ groups.T
    sums = groups @ (heads.matrices.float() * heads.seen) @ groups.T
    means = sums / counts.clamp(min=1)
    largest = means.amax(dim=(-2, -1))
    relative = means / largest.where(largest > 0, torch.ones_like(largest))[..., None, None]
    levels = (
        (TOP * relative.clamp(min=0).sqrt()).round().where(counts > 0, torch.tensor(float(UNSEEN)))
    )
    starts = [start for start, _ in ranges]
    names = {slot: "[SEP]" if number else "[CLS]" for number, slot in enumerate(heads.special)}
    special = {row: names[start] for row, start in enumerate(starts) if start in names}
    return HeatMaps(ranges, special, levels.to(torch.uint8).numpy(), largest.numpy())
