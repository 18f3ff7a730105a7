"""Head scores that somebody else computed, in the files that public code reads and writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from papa.errors import DataError, in_one_line, shown

_HEAD = re.compile(r"(\d{1,4})-(\d{1,4})")
_LAYER = re.compile(r"\d{1,4}")
_FORMATS = (
    "expected a line of numbers for each layer, or JSON with a list of scores under each "
    "'layer-head', or with a list of heads under each layer"
)


def read_scores(
    path: str | Path, *, layers: int | None = None, heads: int | None = None
) -> Float[np.ndarray, "layers heads"]:
    """A score for every head, from somebody's file; ``papa.load_scores`` says what it may hold."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8").strip()
        values = json.loads(text) if text.startswith("{") else _rows(path, text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as head scores ({in_one_line(error)}): {_FORMATS}"
        ) from None
    if isinstance(values, dict):
        values = _by_key(path, values, layers, heads)
    scores = np.array(values, dtype=np.float64)
    for layer, head in np.argwhere(~np.isfinite(scores)).tolist():
        raise DataError(
            f"{path}: the score of head ({layer}, {head}) is {scores[layer, head]}: give a number"
        )
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


def _rows(path: Path, text: str) -> list[list[float]]:
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            rows.append([float(value) for value in line.split()])
        except ValueError:
            raise DataError(f"{path}: line {number} holds {shown(line)}: {_FORMATS}") from None
        if not rows[-1] or len(rows[-1]) != len(rows[0]):
            raise DataError(
                f"{path}: line {number} holds {len(rows[-1])} numbers and the first "
                f"{len(rows[0])}: give one for every head of every layer"
            )
    if not rows:
        raise DataError(f"{path} is empty: {_FORMATS}")
    return rows


def _by_key(
    path: Path, values: Mapping[str, Any], layers: int | None, heads: int | None
) -> Float[np.ndarray, "layers heads"]:
    """The scores of a JSON object: all of its keys name heads, or all name layers."""
    for pattern, read in ((_HEAD, _of_heads), (_LAYER, _of_layers)):
        if values and all(map(pattern.fullmatch, values)):
            return read(path, values, layers, heads)
    odd = next((key for key in values if not _HEAD.fullmatch(key)), None)
    raise DataError(
        f"{path} holds {'nothing' if odd is None else f'the key {shown(odd)}'}: {_FORMATS}"
    )


def _of_heads(path: Path, values: Mapping[str, Any], layers: int | None, heads: int | None) -> Any:
    found = {tuple(map(int, key.split("-"))): own for key, own in values.items()}
    shape = tuple(max(axis) + 1 for axis in (*zip(*found, strict=True),))
    scores = np.full((max(shape[0], layers or 0), max(shape[1], heads or 0)), math.nan)
    for layer, head in np.ndindex(scores.shape):
        own = found.get((layer, head))
        if own is None:
            raise DataError(
                f"{path} has no score of head ({layer}, {head}): give one of every head"
            )
        own = own if isinstance(own, list) else [own]
        if not own or not all(isinstance(value, float | int) for value in own):
            raise DataError(
                f"{path}: head ({layer}, {head}) has {shown(own)}: give its scores, one at least"
            )
        scores[layer, head] = np.mean(own)
    return scores


def _of_layers(path: Path, values: Mapping[str, Any], layers: int | None, heads: int | None) -> Any:
    if layers is None or heads is None:
        raise DataError(
            f"{path} lists heads and no scores, so nobody can tell how many there are: give "
            "layers= and heads=, or a file with a score for every head"
        )
    scores = np.ones((layers, heads))
    for key, own in values.items():
        for head in own if isinstance(own, list) else [own]:
            if type(head) is not int or not (0 <= head < heads and int(key) < layers):
                raise DataError(
                    f"{path}: layer {key} lists {shown(head)}, expected heads from (0, 0) to "
                    f"({layers - 1}, {heads - 1})"
                )
            scores[int(key), head] = 0.0
    return scores
