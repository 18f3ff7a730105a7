"""Measures added up over texts and told as means with their intervals: a row for each layer or
head.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import stdtrit
from torch import Tensor

from papa.scores.intervals import ratio

HALF = "_half_width"
"""Ends the name of the column with half the width of a measure's interval."""


class Mean:
    """The mean over tokens of what is added up text by text, with its interval over texts."""

    def __init__(self) -> None:
        self.moments: Tensor | None = None
        self.amounts = np.zeros(3)

    def add(self, amount: int, sums: Float[Tensor, "*shape"]) -> None:
        """Add a text's sums over ``amount`` tokens."""
        sums = sums.double()
        moments = torch.stack([sums, sums.square(), sums * amount])
        self.moments = moments if self.moments is None else self.moments + moments
        self.amounts += (1, amount, amount**2)

    def told(self) -> tuple[np.ndarray, np.ndarray]:
        """The means, and half the widths of their 95 % intervals; nan of one text."""
        assert self.moments is not None
        texts, *amounts = self.amounts
        mean, error = ratio(int(texts), *self.moments.numpy(), *amounts)
        return mean, error * (stdtrit(texts - 1, 0.975) if texts > 1 else np.nan)


class Means:
    """Means of several measures, by attention."""

    def __init__(self) -> None:
        self.by: dict[str, dict[str, Mean]] = {}

    def add(
        self, of: str, amount: int, sums: Mapping[str, Float[Tensor, " layers *heads"]]
    ) -> None:
        """Add each measure's sum over the ``amount`` tokens of a text; 1 where it is the text's."""
        own = self.by.setdefault(of, {name: Mean() for name in sums})
        for name, mean in own.items():
            mean.add(amount, sums[name])

    def frame(self) -> pd.DataFrame:
        """A row for each attention, layer and, where measures have them, head."""
        return pd.concat([self._of(of) for of in self.by], ignore_index=True)

    def _of(self, of: str) -> pd.DataFrame:
        told = {name: mean.told() for name, mean in self.by[of].items()}
        places = np.indices(next(iter(told.values()))[0].shape)
        columns: dict[str, object] = {"attention": of}
        columns |= zip(("layer", "head"), (index.ravel() for index in places), strict=False)
        for name, (mean, half) in told.items():
            columns |= {name: mean.ravel(), f"{name}{HALF}": half.ravel()}
        return pd.DataFrame(columns)
