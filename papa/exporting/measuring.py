"""What an exported folder gains and keeps: its speed beside the original's, alone and in 8 bits,
and the original's own embeddings, which the score of a probe does not tell.

Times are of real text of several lengths, in batches of several sizes, in pairs of runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.replacement import Constants, replaced
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import load_encoder
from papa.encoders.linear import FrozenLinears, Int8Linear
from papa.encoders.reference import EncoderReference
from papa.encoders.weights import sharing_weights
from papa.errors import ArtifactError
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout, ordinary_inputs, reproducible_rows, spread_rows
from papa.probes.features import FeatureModel
from papa.progress import Progress, ignore_progress
from papa.scores.fidelity import LEAST_SENTENCES, embedding_fidelity
from papa.timing import LEAST, Part, in_turn, of_pairs

TOLERANCE = 1e-4
"""By how much hidden states may differ, relative to the largest of them."""
_CHECKED_ROWS = 16
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
    device = exported.device
    return {
        **timings(states_of(exported), states_of(original), split, exported.layout, progress),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "attention": getattr(original.config, "_attn_implementation", "its own"),
    }


def timings(
    exported: Call,
    original: Call,
    split: TokenisedSplit,
    layout: InputLayout,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Time both on batches of every size and length, the small ones first (``papa.timing``): the
    least seconds per batch, the median ratio within pairs and its 95 % interval; and [batch,
    longest] of shapes that there was no time for. Longest counts tokens, padding included.
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


Way = Literal["int8", "both"]
Scored = Callable[[FeatureModel, bool], Mapping[str, Any] | None]
"""The task's score of an encoder, with the export's constant heads put in or as it is: mean, low,
high, drop, drop_low, drop_high; None where it has none."""


@torch.inference_mode()
def compared(
    ways: Mapping[Way, States],
    original: States,
    split: TokenisedSplit,
    layout: InputLayout,
    progress: Progress = ignore_progress,
) -> dict[Way, dict[str, Any]]:
    """For each way, its ``speed`` against the original and the ``fidelity`` of its embeddings."""
    return {
        way: {
            "speed": timings(states, original, split, layout, progress),
            "fidelity": measure_fidelity(original, states, split, layout),
        }
        for way, states in ways.items()
    }


def measure_int8(
    original: nn.Module,
    both: ExportedEncoder,
    reference: EncoderReference,
    split: TokenisedSplit,
    scored: Scored,
    progress: Progress = ignore_progress,
) -> dict[Way, dict[str, Any]]:
    """``compared`` in torch, and each way's ``score``."""
    alone = sharing_weights(original)
    with FrozenLinears(alone, Int8Linear).in_use():
        ways: dict[Way, States] = {"int8": states_of(alone), "both": states_of(both)}
        found = compared(ways, states_of(original), split, both.layout, progress)
    encoder = load_encoder(reference, int8=True)
    scores = {way: scored(encoder, way == "both") for way in found}
    return {way: {**measured, "score": scores[way]} for way, measured in found.items()}


ROWS, TOKENS = 300, 32_768
"""Texts that are embedded, and tokens of all of them, at most."""
BATCH = 16


@torch.inference_mode()
def measure_fidelity(
    original: States, changed: States, split: TokenisedSplit, layout: InputLayout
) -> dict[str, Any] | None:
    """Compare mean-pooled last hidden states, as sentence-transformers pools them, by the measures
    of ``embedding_fidelity``; None for pairs and masked texts, and where there are too few.
    """
    count = min(ROWS, int(TOKENS / split.lengths.mean()))
    rows = spread_rows(split.rows[np.argsort(split.lengths, kind="stable")], count)
    if split.kind not in ("text", "similarity", "words") or len(rows) < LEAST_SENTENCES:
        return None
    before, after = (_embeddings(states, split, rows, layout) for states in (original, changed))
    return {"texts": len(rows)} | {
        name: asdict(interval) for name, interval in embedding_fidelity(before, after).items()
    }


def _embeddings(
    states: States, split: TokenisedSplit, rows: np.ndarray, layout: InputLayout
) -> Float[np.ndarray, "texts width"]:
    """The mean of the last hidden states of each text's tokens, [CLS] and [SEP] included."""
    found: list[np.ndarray] = []
    for start in range(0, len(rows), BATCH):
        inputs = ordinary_inputs(split, rows[start : start + BATCH], layout)
        mask, last = inputs["attention_mask"][:, :, None], states(inputs).float().cpu()
        found.append(((last * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


@torch.inference_mode()
def check_same(
    exported: ExportedEncoder,
    reference: EncoderReference,
    constants: Constants,
    split: TokenisedSplit,
) -> None:
    """Compare with the encoder as the study ran it, or by distance with tokens in their places, in
    full precision, on some rows.
    """
    layout, rows = exported.layout, _checked_rows(split, exported.layout)
    if not len(rows):
        return
    encoder = load_encoder(replace(reference, precision="float32"), str(exported.device))
    inputs = ordinary_inputs(split, rows, layout)
    tokens = layout.place(**inputs) if layout.slots is None else split.tokens(rows)
    batch = layout.batch(rows, tokens)
    with replaced(encoder, constants, exported.heads):
        expected = encoder.hidden_states(batch)[-1][batch.attention_mask.to(encoder.device)]
    found = exported(**inputs).last_hidden_state
    _refuse_difference(
        found[inputs["attention_mask"].bool().to(found.device)],
        expected,
        "the exported encoder differs from the study's",
        "report this as a fault, nothing was written",
    )


@torch.inference_mode()
def check_graph_same(exported: ExportedEncoder, graph: States, split: TokenisedSplit) -> None:
    """Compare the graph in onnxruntime with the exported encoder on some rows."""
    rows = _checked_rows(split, exported.layout)
    if not len(rows):
        return
    inputs = ordinary_inputs(split, rows, exported.layout)
    _refuse_difference(
        graph(inputs),
        exported(**inputs).last_hidden_state.cpu(),
        "the ONNX form differs from the exported encoder",
        "export without --onnx, and report this as a fault",
    )


def _checked_rows(split: TokenisedSplit, layout: InputLayout) -> np.ndarray:
    return spread_rows(reproducible_rows(split, layout), _CHECKED_ROWS)


def _refuse_difference(found: Tensor, expected: Tensor, what: str, advice: str) -> None:
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise ArtifactError(
            f"{what} by {difference:.1e} of its largest hidden state, at most {TOLERANCE:.0e} is "
            f"allowed: {advice}"
        )
