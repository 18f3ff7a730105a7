"""How far single numbers of hidden states stand out."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen


class Outliers(Means):
    """A row for each layer's hidden states, 0 being the embeddings (Bondarenko et al., 2023,
    Section 5).

    Means over texts: ``kurtosis`` of a text's numbers, 3 for a normal distribution; ``largest``
    absolute number. Constants without their model have no states of their own.
    """

    def see(self, seen: Seen) -> None:
        if seen.of == "constant":
            return
        numbers = seen.states.double().flatten(1)
        sums = {"kurtosis": kurtosis(numbers), "largest": numbers.abs().amax(dim=1)}
        self.add(seen.of, 1, sums)


def kurtosis(numbers: Float[Tensor, "states numbers"]) -> Float[Tensor, " states"]:
    """mean((x - μ)⁴) / (s⁴ + 1e-6) of each row, s² unbiased."""
    deviations = numbers - numbers.mean(dim=1, keepdim=True)
    return deviations.pow(4).mean(dim=1) / (numbers.var(dim=1).square() + 1e-6)
