"""Constant matrices made of the average: what of it is needed? An entry of ``DERIVED`` adds a kind.

Specifications read the names, so this module imports no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from papa.spec.controls import CONTROLS, Matrix
from papa.spec.decoders import OF_DECODERS


@dataclass(frozen=True)
class Averages:
    """The average attention of an encoder's heads.

    Attributes:
        matrices: C.
        counts: in how many inputs both slots held a token.
        special: the slots of [CLS] and [SEP], ascending.
    """

    matrices: Float[np.ndarray, "layers heads slots slots"]
    counts: Float[np.ndarray, "slots slots"]
    special: Sequence[int]


def low_rank(average: Averages, rank: int = 4, largest: int = 0) -> Matrix:
    """The best approximation of C of rank ``rank`` (Eckart and Young, 1936), in which the
    ``largest`` largest entries of C are exact. Entries below 0 become 0.
    """
    left, sizes, right = np.linalg.svd(average.matrices)
    found = (left[..., :rank] * sizes[..., None, :rank]) @ right[..., :rank, :]
    flat, own = found.reshape(*found.shape[:2], -1), average.matrices.reshape(*found.shape[:2], -1)
    if largest:
        places = np.argpartition(-own, largest - 1, axis=-1)[..., :largest]
        np.put_along_axis(flat, places, np.take_along_axis(own, places, axis=-1), axis=-1)
    return flat.clip(min=0).reshape(found.shape)


def relative(average: Averages) -> Matrix:
    """The mean of A over all pairs of tokens at one distance, so that an entry that no input had is
    known by its diagonal.

    The columns and rows of [CLS] and [SEP] have means of their own, over all text, and so have the
    diagonals between two texts. A distance that no input had keeps 0.
    """
    slots = len(average.counts)
    positions = np.arange(slots)
    special = np.zeros(slots, dtype=int)
    special[list(average.special)] = 1 + np.arange(len(average.special))
    part = np.searchsorted(average.special, positions)
    text = (special[:, None] == 0) & (special == 0)
    distances = np.where(text, positions[:, None] - positions, 0)
    across = text & (part[:, None] != part)
    rows, columns = np.broadcast_arrays(special[:, None], special)
    kinds = np.stack([rows, columns, distances, across], axis=-1).reshape(slots * slots, 4)
    group = np.unique(kinds, axis=0, return_inverse=True)[1].ravel()
    counts = np.bincount(group, average.counts.ravel())
    found = np.empty(average.matrices.shape)
    for head in np.ndindex(found.shape[:2]):
        sums = np.bincount(group, (average.matrices[head] * average.counts).ravel())
        found[head] = (sums / counts.clip(min=1))[group].reshape(slots, slots)
    return found


def most_of(slots: int) -> dict[str, int]:
    """The largest values of the keys that slots bound."""
    return {"window": slots - 1, "rank": slots, "largest": slots**2}


DERIVED: dict[str, Callable[..., Matrix]] = {"low_rank": low_rank, "relative": relative}
"""Kind → the matrices of all heads. Arguments after the average are keys of a study."""


def parameters_of(kind: object) -> dict[str, int]:
    """The keys that a kind of constants has in a study, with their defaults."""
    if not isinstance(kind, str):
        return {}
    function = {**CONTROLS, **DERIVED}.get(kind)
    if function is None:
        return dict(OF_DECODERS.get(kind, {}))
    named = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in named
        if parameter.default is not parameter.empty
    }
