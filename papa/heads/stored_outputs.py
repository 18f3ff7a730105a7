"""Constant outputs of a study: computed over a split, and read from an artifact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load_file

from papa.heads.observers import ObservedModel, observer_of
from papa.heads.outputs import ConstantOutputs
from papa.heads.resampling import Resampled, drawn_rows
from papa.models.layer import Observe
from papa.spec import SubstituteKind
from papa.spec.substitutes import SUBSTITUTES
from papa.storage.artifacts import ArtifactReference, verified
from papa.text.corpus import TokenisedSplit

FILE = "outputs.safetensors"
ObserveRows: TypeAlias = Callable[[Observe, Int[np.ndarray, " rows"]], None]
"""Calls an observer with the attention of every layer in passes over some rows of a text."""


@torch.inference_mode()
def outputs_over(
    observe_rows: ObserveRows,
    split: TokenisedSplit,
    kind: SubstituteKind,
    size: tuple[int, int],
    seed: int | None = None,
    donors: int = 1,
) -> ConstantOutputs | Resampled:
    """Average A·V over a split, by slot or over all tokens; or, with a seed, draw once the A·V of
    another input of the same number of tokens (causal scrubbing).

    Args:
        observe_rows: Runs the model over rows of the split.
        split: The text.
        kind: The substitute's name.
        size: (layers, heads in each).
        seed: Of the draw.
        donors: How many texts of each length are drawn: 2 where passes say which text is which, so
            that no text takes its own outputs.
    """
    model = ObservedModel(*size, seed=seed or 0, slots=split.slots)
    observer = observer_of(kind, model)
    rows = split.rows
    if SUBSTITUTES[kind].drawn:
        drawn = drawn_rows(split, model.seed).values()
        rows = np.array(sorted(row for of_length in drawn for row in of_length[:donors]))
    observe_rows(observer.observe, rows)
    outputs = observer.substitute()
    if isinstance(outputs, Resampled) and None in outputs.texts:
        # Passes do not say which text is which: each takes the first donor of its length.
        return outputs.choices[0]
    assert isinstance(outputs, ConstantOutputs | Resampled)
    return outputs


def read_outputs(artifact: ArtifactReference) -> ConstantOutputs | Resampled:
    """Return what a finished step of stage ``constant_outputs`` holds."""
    tensors = load_file(verified(artifact, FILE) / FILE)
    if "texts" not in tensors:
        return ConstantOutputs(tensors["outputs"], tensors["place"])
    choices = tuple(ConstantOutputs(tensors["outputs"], index) for index in tensors["place"])
    return Resampled(choices, tuple(bytes(digest.tolist()) for digest in tensors["texts"]))
