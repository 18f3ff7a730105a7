"""Head scores that somebody else computed, in the files that public code reads and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from papa.errors import DataError, in_one_line, shown


def read_scores(
    path: str | Path, *, layers: int | None = None, heads: int | None = None
) -> Float[np.ndarray, "layers heads"]:
    """A score for every head, from somebody's file; ``papa.load_scores`` says what it may hold."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        if text[0] == "{":
            scores = _of_json(json.loads(text), layers, heads)
        else:
            scores = np.loadtxt(text.splitlines(), ndmin=2)
    except (OSError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as head scores ({in_one_line(error)}): expected a line of "
            "numbers for each layer, or JSON with a list of scores under each 'layer-head', or, "
            "with layers= and heads=, with a list of heads under each layer"
        ) from None
    for layer, head in np.argwhere(~np.isfinite(scores)).tolist():
        raise DataError(f"{path} has no score of head ({layer}, {head}): give one of every head")
    expected = layers or scores.shape[0], heads or scores.shape[1]
    if scores.shape != expected:
        raise DataError(
            f"{path} holds scores of {scores.shape[0]} layers of {scores.shape[1]} heads, expected "
            f"{expected[0]} layers of {expected[1]}: give those of this model"
        )
    return scores


def _of_json(
    values: Mapping[str, Any], layers: int | None, heads: int | None
) -> Float[np.ndarray, "layers heads"]:
    """Of ``{"layer-head": scores}`` their means; of ``{"layer": heads}`` 0 for those, else 1."""
    if all("-" in key for key in values):
        found = {tuple(map(int, key.split("-"))): own for key, own in values.items()}
        most = np.max(list(found), axis=0) + 1
        scores = np.full(np.maximum(most, (layers or 0, heads or 0)), np.nan)
        for place, own in found.items():
            scores[place] = np.mean(own) if own != [] else np.nan
        return scores
    if layers is None or heads is None:
        raise ValueError("it lists heads and no scores")
    scores = np.ones((layers, heads))
    for layer, own in values.items():
        for head in own:
            if not (type(head) is int and 0 <= head < heads and 0 <= int(layer) < layers):
                raise ValueError(f"it lists head {shown(head)} of layer {layer}")
            scores[int(layer), head] = 0.0
    return scores
