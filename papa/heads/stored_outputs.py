"""Constant outputs of a study: computed over a split, and read from an artifact."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load_file

from papa.heads.observers import ObservedModel, Observer
from papa.heads.outputs import ConstantOutputs
from papa.heads.resampling import Resampled, drawn_rows
from papa.models.layer import Observe
from papa.spec import ConstantsKind
from papa.spec.substitutes import SUBSTITUTES
from papa.storage.artifacts import ArtifactReference, verified
from papa.text.corpus import TokenisedSplit

FILE = "outputs.safetensors"
ObserveRows: TypeAlias = Callable[[Observe, Int[np.ndarray, " rows"]], None]
"""Calls an observer with the attention of every layer in passes over some rows of a text."""


@runtime_checkable
class OutputObserver(Observer, Protocol):
    """An observer that computes constant outputs."""

    def constant_outputs(self, slots: int) -> ConstantOutputs | Resampled:
        """Return the outputs, for inputs of so many slots."""


@torch.inference_mode()
def outputs_over(
    observe_rows: ObserveRows,
    split: TokenisedSplit,
    kind: ConstantsKind,
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
    entry = SUBSTITUTES[kind]
    model = ObservedModel(*size, seed=seed or 0, slots=split.slots)
    observer: OutputObserver = resolve_name(entry.observer)(model)
    rows = split.rows
    if entry.drawn:
        drawn = drawn_rows(split, model.seed).values()
        rows = np.array(sorted(row for of_length in drawn for row in of_length[:donors]))
    observe_rows(observer.observe, rows)
    return observer.constant_outputs(split.slots)


def read_outputs(artifact: ArtifactReference, kind: ConstantsKind) -> ConstantOutputs | Resampled:
    """Return what a finished step of stage ``constant_outputs`` holds."""
    tensors = load_file(verified(artifact, FILE) / FILE)
    if "texts" not in tensors:
        return ConstantOutputs(tensors["outputs"], tensors["place"], kind)
    choices = tuple(ConstantOutputs(tensors["outputs"], index, kind) for index in tensors["place"])
    return Resampled(choices, tuple(bytes(digest.tolist()) for digest in tensors["texts"]))
