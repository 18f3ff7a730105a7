"""Measures added up over texts and told as means: a row for each layer or head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor


class Means:
    """Sums of measures by attention, and of how much they are."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, Tensor]] = {}
        self.amounts: dict[str, int] = defaultdict(int)

    def add(self, of: str, amount: int, sums: Mapping[str, Float[Tensor, "layers *heads"]]) -> None:
        """Add each measure's sum over ``amount`` tokens or texts."""
        before = self.sums.get(of, {})
        self.sums[of] = {name: before.get(name, 0) + own.double() for name, own in sums.items()}
        self.amounts[of] += amount

    def frame(self) -> pd.DataFrame:
        """A row for each attention, layer and, where measures have them, head."""
        return pd.concat([self._of(of) for of in self.sums], ignore_index=True)

    def _of(self, of: str) -> pd.DataFrame:
        sums = self.sums[of]
        shape = next(iter(sums.values())).shape
        places = (index.ravel() for index in np.indices(shape))
        return pd.DataFrame(
            {
                "attention": of,
                **dict(zip(("layer", "head"), places, strict=False)),
                **{name: (own / self.amounts[of]).flatten() for name, own in sums.items()},
            }
        )
