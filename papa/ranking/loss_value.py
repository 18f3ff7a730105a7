"""The worth of heads by losses, which workers may share and some calls one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set

from papa.spec.orders import Head

Loss = tuple[float, int]
"""The sum of losses, and how many there are."""


class Losses(ABC):
    """Losses on some rows, a batch at a time; ``sizes`` says how much work each batch is."""

    heads: list[Head]
    sizes: list[int]

    @abstractmethod
    def loss(self, own: Set[Head], number: int) -> Loss:
        """Those of batch ``number`` while all heads outside of ``own`` are constant."""


class Paused(Exception):
    """A method asks for more values than a call computes; ``values`` are those it was given."""

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = values


class LossValue:
    """v(S) is the negative mean loss on some rows.

    Args:
        of_batches: of S and the batches' numbers and sizes, the losses of each batch, by any
            worker; None computes them here.
        values: what the same method was given before, in its order: it is given that again.
        most: values to compute before ``Paused``.
    """

    def __init__(
        self,
        losses: Losses,
        of_batches: Callable[[Set[Head], Sequence[int], Sequence[int]], list[Loss]] | None = None,
        values: Sequence[float] = (),
        most: int | None = None,
    ) -> None:
        self.heads, self._sizes, self.evaluations = losses.heads, losses.sizes, 0
        self._of_batches = of_batches or (
            lambda own, numbers, _: [losses.loss(own, number) for number in numbers]
        )
        self._values = [*values]
        self._end = None if most is None else len(values) + most
        self._last: Set[Head] | None = None

    def __call__(self, own: Set[Head]) -> float:
        """v of the heads that stay input-dependent."""
        if own != self._last:
            if self.evaluations == len(self._values):
                self._values.append(self._computed(own))
            self.evaluations, self._last = self.evaluations + 1, own
        return self._values[self.evaluations - 1]

    def _computed(self, own: Set[Head]) -> float:
        if len(self._values) == self._end:
            raise Paused(tuple(self._values))
        total, terms = 0.0, 0
        # In the batches' order, whoever computed them: floating-point sums depend on it.
        for loss, count in self._of_batches(own, range(len(self._sizes)), self._sizes):
            total, terms = total + loss, terms + count
        return -total / terms
