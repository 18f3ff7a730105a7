"""Files with a score for every head that other tools wrote."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Float

from papa.errors import DataError, in_one_line
from papa.files import refuse_pointer

_NUMPY = b"\x93NUMPY"
"""How a file begins that ``numpy.save`` wrote."""


def _scores_in_text(text: str) -> np.ndarray:
    """Return the scores in a text: JSON lists, lines of numbers, or JSON by layer and head."""
    if text[0] == "[":
        return np.array(json.loads(text), dtype=float)
    if text[0] != "{":
        return np.loadtxt(text.splitlines(), ndmin=2, delimiter="," if "," in text else None)
    lists = json.loads(text)
    heads = np.array([key.split("-") for key in lists], dtype=int)
    scores = np.full(heads.max(axis=0) + 1, np.nan)
    for (layer, head), samples in zip(heads, lists.values(), strict=True):
        scores[layer, head] = np.mean(samples)
    return scores


def read_score_file(path: str | Path) -> Float[np.ndarray, "layers heads"]:
    """Return a score for every head, from somebody's file, as ``papa.load_scores`` says."""
    try:
        refuse_pointer(Path(path), DataError)
        data = Path(path).read_bytes()
        if data.startswith(_NUMPY):
            scores = np.load(BytesIO(data), allow_pickle=False).astype(float)
        else:
            scores = _scores_in_text(data.decode("utf-8-sig").strip())
        if scores.ndim != 2:
            raise ValueError(f"it has {scores.ndim} dimensions, expected 2")
        for layer, head in np.argwhere(~np.isfinite(scores)).tolist():
            raise ValueError(f"the score of head ({layer}, {head}) is missing")
        return scores
    except (OSError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as head scores ({in_one_line(error)}): give a line of "
            "numbers for each layer, separated by blanks, tabs or commas, without a header; "
            "an array [layers, heads] as .npy or JSON lists; or JSON with a list of scores "
            "for each 'layer-head'"
        ) from None
