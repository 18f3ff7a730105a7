"""How much faster an exported encoder is than the original: on real text of several lengths, in
batches of several sizes, in pairs of runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papa.corpora.split import TokenisedSplit
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout
from papa.progress import Progress, ignore_progress
from papa.timing import LEAST, Part, in_turn, of_pairs

BATCHES = (1, 16, 64)
"""Inputs in a batch."""
LENGTHS = (0.1, 0.5, 0.95)
"""Which quantiles of the split's lengths inputs have: short ones, usual ones, long ones."""
ALIKE = 16
"""Different inputs in a batch; larger ones repeat them, so that all are nearly of the length asked
for.
"""
PATIENCE, BUDGET = 3.0, 60.0
"""Seconds for one shape, and for all: shapes that would take longer are left out."""
States = Callable[[dict[str, Tensor]], Tensor]
"""From inputs as a tokenizer gives them to last hidden states [batch, tokens, width]."""
Call = Callable[[dict[str, Tensor]], object]


@torch.inference_mode()
def measure_speed(
    original: nn.Module,
    exported: ExportedEncoder,
    split: TokenisedSplit,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Seconds per batch of the original and the exported encoder on the same inputs, device and
    threads.
    """
    return {
        **timings(states_of(exported), states_of(original), split, exported.layout, progress),
        "threads": torch.get_num_threads(),
        "device": _device_name(exported.device),
        "attention": getattr(original.config, "_attn_implementation", "its own"),
    }


def timings(
    exported: Call,
    original: Call,
    split: TokenisedSplit,
    layout: InputLayout,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Time both on batches of every size and length, the small ones first (``papa.timing``).

    Returns:
        ``timings``: batch, longest (tokens of each input, padding included), original_seconds and
        exported_seconds (the least per batch), ratio (the median within pairs) and its 95 %
        interval low and high, pairs; ``left_out``: [batch, longest] of shapes that there was no
        time for.
    """
    lengths = sorted({int(length) for length in np.quantile(split.lengths, LENGTHS)})
    shapes = sorted(product(BATCHES, lengths), key=prod)
    found, started, seconds_per_token = list[dict[str, float]](), time.monotonic(), 0.0
    for batch, length in shapes:
        expected = (LEAST + 1) * seconds_per_token * batch * length
        if found and time.monotonic() - started + expected > BUDGET:
            break
        inputs = _batch(split, batch, length, layout)
        exported(inputs), original(inputs)  # The first run of a shape is slower.
        timed = in_turn(
            partial(exported, inputs),
            Part(partial(original, inputs)),
            ratio=of_pairs,
            patience=PATIENCE,
        )
        seconds_per_token = (timed.ours + timed.plain) / (batch * length)
        found.append(
            {
                "batch": batch,
                "longest": inputs["input_ids"].shape[1],
                "original_seconds": timed.plain,
                "exported_seconds": timed.ours,
                **{name: getattr(timed, name) for name in ("ratio", "low", "high", "pairs")},
            }
        )
        progress(len(found), len(shapes))
    return {"timings": found, "left_out": [list(shape) for shape in shapes[len(found) :]]}


def _batch(
    split: TokenisedSplit, batch: int, length: int, layout: InputLayout
) -> dict[str, Tensor]:
    """A batch of the split's inputs whose lengths are nearest."""
    nearest = np.argsort(np.abs(split.lengths - length), kind="stable")[: min(batch, ALIKE)]
    inputs = ordinary_inputs(split, split.rows[nearest], layout)
    return {name: tensor[torch.arange(batch) % len(nearest)] for name, tensor in inputs.items()}


def states_of(model: nn.Module) -> States:
    """Calls of the model, inputs brought to its device included."""
    device = next(model.parameters()).device

    def states(inputs: dict[str, Tensor]) -> Tensor:
        found: Tensor = model(
            **{name: tensor.to(device) for name, tensor in inputs.items()}
        ).last_hidden_state
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return found

    return states


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def spread_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the rows (or all, where there are fewer) evenly spread, in their order."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def reproducible_rows(split: TokenisedSplit, layout: InputLayout) -> np.ndarray:
    """The rows that an exported encoder meets as the corpus has them.

    Under segment_ids 'stay' a corpus gives a pair that was cut the segments of the uncut one, which
    its tokens no longer tell; so pairs with a text that fills its slots, and may have been cut, are
    left out.
    """
    if layout.texts == 1 or layout.segment_ids == "follow":
        return split.rows
    second_lengths = split.lengths - split.first_lengths - layout.framing.between - 2
    return split.rows[
        (split.first_lengths < layout.longest[0]) & (second_lengths < layout.longest[1])
    ]


def ordinary_inputs(
    split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> dict[str, Tensor]:
    """The rows as input_ids, attention_mask and, where the encoder's tokenizer gives any,
    token_type_ids.
    """
    tokens, framing = split.tokens(rows), layout.framing
    mask = torch.arange(int(tokens.lengths.max()))[None] < torch.from_numpy(tokens.lengths)[:, None]
    input_ids = torch.full(mask.shape, framing.pad, dtype=torch.int64)
    input_ids[mask] = torch.from_numpy(tokens.input_ids).long()
    inputs = {"input_ids": input_ids, "attention_mask": mask.long()}
    if any(framing.segments):
        # Not the corpus's own: under segment_ids 'stay' those have moved already.
        segments = replace(layout, segment_ids="follow").place(**inputs).token_type_ids
        inputs["token_type_ids"] = torch.zeros_like(input_ids)
        inputs["token_type_ids"][mask] = torch.from_numpy(segments).long()
    return inputs
