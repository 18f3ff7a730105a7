"""Rows of a tokenised corpus as a tokenizer would give them: without gaps, padded on the right."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from papa.corpora.split import TokenizedSplit
from papa.exporting.layout import InputLayout


def spread_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the rows (or all, where there are fewer) evenly spread, in their order."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def reproducible_rows(split: TokenizedSplit, layout: InputLayout) -> np.ndarray:
    """The rows that an exported encoder meets as the corpus has them.

    Under segment_ids 'stay' a corpus gives a pair that was cut the segments of the uncut one, which its tokens no
    longer tell; so pairs with a text that fills its room, and may have been cut, are left out.
    """
    if layout.texts == 1 or layout.segment_ids == "follow":
        return split.rows
    second_lengths = split.lengths - split.first_lengths - layout.between - 2
    return split.rows[(split.first_lengths < layout.longest[0]) & (second_lengths < layout.longest[1])]


def ordinary_inputs(split: TokenizedSplit, rows: np.ndarray, layout: InputLayout) -> dict[str, Tensor]:
    """The rows as input_ids, attention_mask and, where the encoder's tokenizer gives any, token_type_ids."""
    tokens = split.tokens(rows)
    mask = torch.arange(int(tokens.lengths.max()))[None] < torch.from_numpy(tokens.lengths)[:, None]
    input_ids = torch.full(mask.shape, layout.pad, dtype=torch.int64)
    input_ids[mask] = torch.from_numpy(tokens.input_ids).long()
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    if any(layout.segments):
        # Not the corpus's own: under segment_ids 'stay' those have moved already.
        segments = (layout.place(**inputs).first_lengths + layout.between + 1)[:, None]
        inputs["token_type_ids"] = _segments(mask, segments, layout)
    return inputs


def _segments(mask: Tensor, start_of_second: Tensor, layout: InputLayout) -> Tensor:
    place = torch.arange(mask.shape[1])[None]
    first, between, second = (torch.full_like(mask, value, dtype=torch.int64) for value in layout.segments)
    if layout.texts == 1:
        return first * mask
    segments = torch.where(place >= start_of_second, second, between)
    return torch.where(place < start_of_second - layout.between, first, segments) * mask
