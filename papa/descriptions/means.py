"""Measures added up over texts, and the frame that every description gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import stdtrit
from torch import Tensor

from papa.scores.intervals import ratio


def rows(
    attention: str, measure: str, value: Any, half: Any = np.nan, **place: Any
) -> pd.DataFrame:
    """Rows of one measure, its value with half the width of its 95 % interval: of an attention, a
    ``layer`` and a ``head`` where it has them, and ``of`` what else: another head, a relation.
    """
    value = np.ravel(value)
    columns = {"attention": attention, "layer": pd.NA, "head": pd.NA, "of": "", **place}
    numbers = {"value": value, "low": value - np.ravel(half), "high": value + np.ravel(half)}
    frame = pd.DataFrame({**columns, "measure": measure, **numbers}, index=range(len(value)))
    return frame.astype({"layer": "Int64", "head": "Int64"})


class Means:
    """Means over texts of what is added up text by text: a row for each attention, measure, layer
    and, where a measure has them, head, with its 95 % interval over texts; nan of one text.
    """

    def __init__(self) -> None:
        self.moments: dict[tuple[str, str], Tensor] = {}
        self.amounts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))

    def add(self, of: str, amount: int, sums: Mapping[str, Float[Tensor, "*shape"]]) -> None:
        """Add each measure's sum over the ``amount`` tokens of a text; 1 where it is the text's."""
        for measure, values in sums.items():
            own = values.double()
            moments = torch.stack([own, own.square(), own * amount])
            before = self.moments.get((of, measure))
            self.moments[of, measure] = moments if before is None else before + moments
        self.amounts[of] += (1, amount, amount**2)

    def told(self) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
        """Of what attention which measure: the means, and half the widths of their intervals."""
        for (of, measure), moments in self.moments.items():
            texts, *amounts = self.amounts[of]
            mean, error = ratio(int(texts), *moments.numpy(), *amounts)
            yield of, measure, mean, error * (stdtrit(texts - 1, 0.975) if texts > 1 else np.nan)

    def frame(self) -> pd.DataFrame:
        """All of them."""
        parts = []
        for of, measure, mean, half in self.told():
            places = zip(("layer", "head"), np.indices(mean.shape), strict=False)
            named = {name: index.ravel() for name, index in places}
            parts.append(rows(of, measure, mean, half, **named))
        return pd.concat(parts, ignore_index=True)
