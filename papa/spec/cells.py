"""The cells of a study: which heads are constant in a cell, and which cells share one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papa.spec.orders import Head, Order


@dataclass(frozen=True)
class Cell:
    """One combination of a study; with each of the study's seeds it yields one score. The fraction
    is the share of heads that stay input-dependent (paper, Section 3.1).
    """

    encoder: str
    task: str
    constants: str
    order: Order
    fraction: float

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Cell:
        """The cell of a row of a table; its fraction to six decimals, as a file may round it."""
        names = {name: str(row[name]) for name in ("encoder", "task", "constants", "order")}
        return cls(**names, fraction=round(float(row["fraction"]), 6))

    def result(self, heads_in_all: int | None = None) -> Cell:
        """What cells that share a result have in common: constants and order are empty where they
        change nothing. With L·H, fractions that make equally many heads constant share one.
        """
        fraction = self.fraction
        if heads_in_all is not None:
            fraction = 1 - constant_count(fraction, heads_in_all) / heads_in_all
        constants = self.constants if fraction < 1 else ""
        order = self.order if 0 < fraction < 1 else ""
        return Cell(self.encoder, self.task, constants, order, fraction)


def constant_count(fraction: float, heads_in_all: int) -> int:
    """How many heads are constant at an input-dependent fraction f: round((1 - f)·L·H)."""
    return round((1 - fraction) * heads_in_all)


def constant_heads(order: Sequence[Head], fraction: float) -> tuple[Head, ...]:
    """The constant heads at an input-dependent fraction: the first of the head order."""
    return tuple(order[: constant_count(fraction, len(order))])


def partial_counts(fractions: Iterable[float], heads_in_all: int) -> dict[float, int]:
    """How many heads are constant at each fraction at which orders differ: some are, some not."""
    counts = {fraction: constant_count(fraction, heads_in_all) for fraction in fractions}
    return {fraction: count for fraction, count in counts.items() if 0 < count < heads_in_all}
