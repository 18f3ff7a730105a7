"""How far single numbers of hidden states stand out."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from papa.descriptions.seen import Seen


class Outliers:
    """A row for each layer's hidden states, 0 being the embeddings (Bondarenko et al., 2023,
    Section 5).

    ``kurtosis`` is of the numbers of a text, not in excess: 3 for a normal distribution;
    ``largest`` is the largest absolute number of a text. Both are means over texts. Constants
    without their model have no states of their own.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.texts: dict[str, int] = defaultdict(int)

    def see(self, seen: Seen) -> None:
        if seen.of == "constant":
            return
        numbers = seen.states.double().flatten(1)
        found = torch.stack([kurtosis(numbers), numbers.abs().amax(dim=1)])
        self.sums[seen.of] = self.sums.get(seen.of, 0) + found
        self.texts[seen.of] += 1

    def frame(self) -> pd.DataFrame:
        parts = []
        for of, sums in self.sums.items():
            found, largest = sums / self.texts[of]
            parts.append(
                pd.DataFrame(
                    {
                        "attention": of,
                        "layer": range(len(found)),
                        "kurtosis": found,
                        "largest": largest,
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)


def kurtosis(numbers: Float[Tensor, "states numbers"]) -> Float[Tensor, " states"]:
    """mean((x - μ)⁴) / (s⁴ + 1e-6) of each row, s² unbiased."""
    deviations = numbers - numbers.mean(dim=1, keepdim=True)
    return deviations.pow(4).mean(dim=1) / (numbers.var(dim=1).square() + 1e-6)
