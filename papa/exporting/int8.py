"""Int8 beside constant heads: what each gains and costs, and both together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn

from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import load_encoder
from papa.encoders.linear import FrozenLinears, Int8Linear
from papa.encoders.reference import EncoderReference
from papa.encoders.weights import sharing_weights
from papa.exporting.fidelity import measure_fidelity
from papa.exporting.model import ExportedEncoder
from papa.exporting.placement import InputLayout
from papa.exporting.speed import States, states_of, timings
from papa.probes.features import FeatureModel
from papa.progress import Progress, ignore_progress

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
    """For each way, its ``speed`` (``papa.exporting.speed.timings``) against the original and the
    ``fidelity`` of its embeddings to it.
    """
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
