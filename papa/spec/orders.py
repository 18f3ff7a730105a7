"""What a study calls the orders in which heads become constant (``papa.ranking.orders``)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import AfterValidator

from papa.errors import DataError, in_one_line

Head = tuple[int, int]
"""(layer, head), both from 0."""
SCORES, REVERSED = "scores", "reversed:"
_CODE = re.compile(r"(?!(?:scores|reversed):)([A-Za-z_]\w*):[A-Za-z_]\w*", re.ASCII)


def module_of(name: object) -> str | None:
    """Of ``module:name``, code of the user's own, the module; None where a name is of no code."""
    found = _CODE.fullmatch(name) if isinstance(name, str) else None
    return found[1] if found else None


def scores_in(order: str) -> str | None:
    """The name of the scores that an order follows, its own where it is code's; None for others."""
    order = order.removeprefix(REVERSED)
    kind, _, name = order.partition(":")
    return order if module_of(order) else name if kind == SCORES else None


def without_name(order: str) -> str:
    """The order as keys have it, whatever its scores are called: the draw tells their heads."""
    reverse = REVERSED if order.startswith(REVERSED) else ""
    return order if scores_in(order) is None else f"{reverse}{SCORES}"


Order = Annotated[
    str,
    AfterValidator(lambda order: "lambda_reversed" if order == f"{REVERSED}lambda" else order),
]
"""An order by its name, ``scores:NAME``, the user's code, or one from its end: ``reversed:…``."""


def read_scores(path: str | Path) -> Float[np.ndarray, "layers heads"]:
    """A score for every head, from somebody's file, as ``papa.load_scores`` says."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
        if text[0] == "{":
            lists = json.loads(text)
            heads = np.array([key.split("-") for key in lists], dtype=int)
            scores = np.full(heads.max(axis=0) + 1, np.nan)
            for (layer, head), own in zip(heads, lists.values(), strict=True):
                scores[layer, head] = np.mean(own)
        else:
            scores = np.loadtxt(text.splitlines(), ndmin=2)
        for layer, head in np.argwhere(~np.isfinite(scores)).tolist():
            raise ValueError(f"it has no score of head ({layer}, {head})")
        return scores
    except (OSError, TypeError, ValueError, LookupError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read as head scores ({in_one_line(error)}): expected a line of "
            "numbers for each layer, or JSON with a list of scores under each 'layer-head'"
        ) from None
