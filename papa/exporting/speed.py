"""How much faster an exported encoder is than the original: on real text, in alternation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papa.corpora.split import TokenisedSplit
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout
from papa.progress import Progress, silent

BATCHES = ((16, 64), (1, 16))
"""Inputs in a batch, and rows in all: many texts at once, padded to the longest, and one text at a time."""
REPEATS = 9
ENOUGH_SECONDS = 30.0
"""After this long, three repeats are enough."""


@torch.inference_mode()
def measure_speed(
    original: nn.Module, exported: ExportedEncoder, split: TokenisedSplit, progress: Progress = silent
) -> dict[str, Any]:
    """Seconds per batch of the original and the exported encoder on the same inputs, device and threads.

    Args:
        original: the unmodified model of ``transformers``, in eval mode.
        exported: the encoder with constant heads.
        split: where inputs are taken from, in its order.
        progress: called with repeats done and in all.

    Returns:
        ``timings``: batch, longest (tokens after padding), real_tokens (mean per text), original_seconds and
        exported_seconds (medians over repeats, per batch), ratio; and how they were measured.
    """
    timings, repeats = [], REPEATS
    for number, (batch, rows) in enumerate(BATCHES):
        chosen = spread_rows(split.rows, rows)
        parts = [chosen[start : start + batch] for start in range(0, len(chosen), batch)]
        batches = [ordinary_inputs(split, part, exported.layout) for part in parts]
        runs = _alternate([original, exported], batches, partial(_shifted, progress, number))
        repeats = min(repeats, len(runs[0]))
        seconds = [statistics.median(run) / len(batches) for run in runs]
        timings.append(
            {
                "batch": min(batch, len(chosen)),
                "longest": max(inputs["input_ids"].shape[1] for inputs in batches),
                "real_tokens": sum(int(inputs["attention_mask"].sum()) for inputs in batches) / len(chosen),
                "original_seconds": seconds[0],
                "exported_seconds": seconds[1],
                "ratio": seconds[0] / seconds[1],
            }
        )
    return {
        "timings": timings,
        "threads": torch.get_num_threads(),
        "device": _device_name(exported.device),
        "attention": getattr(original.config, "_attn_implementation", "its own"),
        "repeats": repeats,
        "rows": min(BATCHES[0][1], len(split)),
    }


def _alternate(
    models: Sequence[nn.Module], batches: Sequence[dict[str, Tensor]], progress: Progress
) -> list[list[float]]:
    """Each model's seconds over all batches, one entry per repeat; a first pass warms up.

    The models take turns at every batch, so that whatever else the machine does meets both.
    """
    for model in models:
        for inputs in batches:
            _seconds(model, inputs)
    seconds: list[list[float]] = [[] for _ in models]
    started = time.monotonic()
    for repeat in range(REPEATS):
        totals = [0.0 for _ in models]
        for number, inputs in enumerate(batches):
            turn = range(len(models)) if (repeat + number) % 2 == 0 else range(len(models) - 1, -1, -1)
            for index in turn:
                totals[index] += _seconds(models[index], inputs)
        for index, total in enumerate(totals):
            seconds[index].append(total)
        progress(repeat + 1, REPEATS)
        if repeat >= 2 and time.monotonic() - started > ENOUGH_SECONDS:
            break
    return seconds


def _shifted(progress: Progress, number: int, done: int, total: int) -> None:
    progress(number * total + done, len(BATCHES) * total)


def _seconds(model: nn.Module, inputs: dict[str, Tensor]) -> float:
    """Seconds of one call, inputs brought to the device included."""
    device = next(model.parameters()).device
    begun = time.perf_counter()
    model(**{name: tensor.to(device) for name, tensor in inputs.items()})
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def spread_rows(rows: np.ndarray, count: int) -> np.ndarray:
    """``count`` of the rows (or all, where there are fewer) evenly spread, in their order."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def reproducible_rows(split: TokenisedSplit, layout: InputLayout) -> np.ndarray:
    """The rows that an exported encoder meets as the corpus has them.

    Under segment_ids 'stay' a corpus gives a pair that was cut the segments of the uncut one, which its tokens no
    longer tell; so pairs with a text that fills its slots, and may have been cut, are left out.
    """
    if layout.texts == 1 or layout.segment_ids == "follow":
        return split.rows
    second_lengths = split.lengths - split.first_lengths - layout.framing.between - 2
    return split.rows[(split.first_lengths < layout.longest[0]) & (second_lengths < layout.longest[1])]


def ordinary_inputs(split: TokenisedSplit, rows: np.ndarray, layout: InputLayout) -> dict[str, Tensor]:
    """The rows as input_ids, attention_mask and, where the encoder's tokenizer gives any, token_type_ids."""
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
