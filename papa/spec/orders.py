"""What a study calls the orders in which heads become constant (``papa.ranking.orders``), and its
cells: which heads are constant in a cell, and which cells share one result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Head = tuple[int, int]
"""(layer, head), both from 0."""
Unit = Literal["head", "kv_group"]
"""What is scored and becomes constant as a whole: a head, or the heads that share keys and values.
"""
UNIT_LABELS: Mapping[Unit, str] = {"head": "heads", "kv_group": "groups of heads"}
"""What units are in sentences."""


def head_name(layer: int, head: int) -> str:
    """Return a head as people read it, ``L0H11``."""
    return f"L{layer}H{head}"


def heads_of_units(units: Iterable[Head], heads_per_unit: int) -> list[Head]:
    """Return the heads (layer, head) of units (layer, unit), unit by unit."""
    return [
        (layer, unit * heads_per_unit + member)
        for layer, unit in units
        for member in range(heads_per_unit)
    ]


SCORES = "scores"
REVERSED = "reversed:"
_CODE = re.compile(r"(?!(?:scores|reversed):)([A-Za-z_]\w*):[A-Za-z_]\w*", re.ASCII)


def module_of(name: object) -> str | None:
    """Return the module of ``module:name``, custom code; None where a name is of no code."""
    match = _CODE.fullmatch(name) if isinstance(name, str) else None
    return match[1] if match else None


def scores_in(order: str) -> str | None:
    """Return the name of the scores that an order follows, its own where it is code's; None for
    others.
    """
    order = order.removeprefix(REVERSED)
    kind, _, name = order.partition(":")
    return order if module_of(order) else name if kind == SCORES else None


def without_name(order: str) -> str:
    """Return the order as keys have it, without the name of its scores: the draw identifies its
    heads.
    """
    reverse = REVERSED if order.startswith(REVERSED) else ""
    return order if scores_in(order) is None else f"{reverse}{SCORES}"


Order = str
"""An order by its name, ``scores:NAME``, the user's code, or one from its end: ``reversed:…``."""
AnsweringHead = Literal["probe", "native"]
"""What answers a task: a probe, trained on the frozen encoder, or the model's native head."""


def default_order(heads: Iterable[AnsweringHead]) -> Order:
    """Return the order of heads where none is named, by what answers each task.

    On native heads ``effect`` finds needed heads best (docs/how-to/which-method.md). On probes
    orders hardly differ, and a study repeats the paper by λ.
    """
    return "effect" if all(head == "native" for head in heads) else "lambda"


@dataclass(frozen=True)
class Cell:
    """One combination of a study; with each of the study's seeds it yields one score.

    Examples:
        >>> papa.Cell("all-MiniLM-L6-v2", "cola", "average", "lambda", 0.5).fraction
        0.5

    Attributes:
        encoder: The encoder's name.
        task: The task's name.
        constants: The substitute's name.
        order: The head order.
        fraction: The share of heads that stay input-dependent (paper, Section 3.1).
    """

    encoder: str
    task: str
    constants: str
    order: Order
    fraction: float

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Cell:
        """Return the cell of a row of a table; its fraction to six decimals, as a file may round
        it.
        """
        return cls(
            encoder=str(row["encoder"]),
            task=str(row["task"]),
            constants=str(row["constants"]),
            order=str(row["order"]),
            fraction=round(float(row["fraction"]), 6),
        )

    def canonical(self, unit_count: int | None = None) -> Cell:
        """Return the cell that stands for all with the same result: constants and order are empty
        where they change nothing. With ``unit_count``, how many heads, or groups of heads, the
        encoder has, fractions that make equally many of them constant are one.
        """
        fraction = self.fraction
        if unit_count is not None:
            fraction = 1 - constant_count(fraction, unit_count) / unit_count
        constants = self.constants if fraction < 1 else ""
        order = self.order if 0 < fraction < 1 else ""
        return Cell(self.encoder, self.task, constants, order, fraction)


def constant_count(fraction: float, unit_count: int) -> int:
    """Return how many of n heads, or groups of heads, are constant at an input-dependent fraction
    f: round((1 - f)·n).
    """
    return round((1 - fraction) * unit_count)


def constant_heads(order: Sequence[Head], fraction: float) -> tuple[Head, ...]:
    """Return the constant heads at an input-dependent fraction: the first of the head order."""
    return tuple(order[: constant_count(fraction, len(order))])


def partial_counts(fractions: Iterable[float], unit_count: int) -> dict[float, int]:
    """Return how many heads, or groups of heads, are constant at each fraction at which orders
    differ: some are, some not.
    """
    counts = {fraction: constant_count(fraction, unit_count) for fraction in fractions}
    return {fraction: count for fraction, count in counts.items() if 0 < count < unit_count}
