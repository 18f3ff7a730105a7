"""Head scores that somebody else computed, in the files that public code reads and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from papa.errors import DataError, in_one_line, shown

_FORMATS = (
    "expected a line of numbers for each layer, or JSON with a list of scores under each "
    "'layer-head', or with a list of heads under each layer"
)


def read_scores(
    path: str | Path, *, layers: int | None = None, heads: int | None = None
) -> Float[np.ndarray, "layers heads"]:
    """A score for every head, from somebody's file; ``papa.load_scores`` says what it may hold."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        held = json.loads(text) if text.startswith("{") else None
        scores = _of_lines(text) if held is None else _of_json(held, layers, heads)
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as head scores ({in_one_line(error)}): {_FORMATS}"
        ) from None
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    for layer, head in np.argwhere(~np.isfinite(scores)).tolist():
        raise DataError(f"{path} has no score of head ({layer}, {head}): give one of every head")
    if scores.shape != (layers or scores.shape[0], heads or scores.shape[1]):
        raise DataError(
            f"{path} holds scores of {scores.shape[0]} layers of {scores.shape[1]} heads, "
            f"expected {layers or scores.shape[0]} layers of {heads or scores.shape[1]}: give "
            "those of this model"
        )
    return scores


def scores_as_tsv(scores: Float[np.ndarray, "layers heads"]) -> str:
    """The scores as ``read_scores`` and DuoAttention's code read them: a line for each layer."""
    return "\n".join("\t".join(map(repr, row)) for row in np.asarray(scores, np.float64).tolist())


def _of_lines(text: str) -> Float[np.ndarray, "layers heads"]:
    if not text:
        raise DataError(f"is empty: {_FORMATS}")
    return np.loadtxt(text.splitlines(), ndmin=2)


def _of_json(
    values: Mapping[str, Any], layers: int | None, heads: int | None
) -> Float[np.ndarray, "layers heads"]:
    """The scores of a JSON object: all of its keys name heads, or all name layers."""
    if values and all(re.fullmatch(r"\d{1,4}-\d{1,4}", key) for key in values):
        found = {tuple(map(int, key.split("-"))): own for key, own in values.items()}
        most = np.max(list(found), axis=0) + 1
        scores = np.full(np.maximum(most, (layers or 0, heads or 0)), np.nan)
        for place, own in found.items():
            scores[place] = np.nan if own == [] else np.mean(own)
        return scores
    odd = next((key for key in values if not re.fullmatch(r"\d{1,4}", key)), None)
    if not values or odd is not None:
        raise DataError(f"holds {f'the key {shown(odd)}' if odd else 'nothing'}: {_FORMATS}")
    if layers is None or heads is None:
        raise DataError(
            "lists heads and no scores, so nobody can tell how many there are: give layers= and "
            "heads=, or a file with a score for every head"
        )
    scores = np.ones((layers, heads))
    for layer, own in values.items():
        for head in own if isinstance(own, list) else [own]:
            if type(head) is not int or not (0 <= head < heads and int(layer) < layers):
                raise DataError(
                    f"lists {shown(head)} of layer {layer}, expected heads from (0, 0) to "
                    f"({layers - 1}, {heads - 1})"
                )
            scores[int(layer), head] = 0.0
    return scores
