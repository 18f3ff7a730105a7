"""The heads of one encoder on one task: their constant matrices, λ, places in head orders and
patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.patterns import HeadPatterns
from papa.ranking.seeds import TrainedLambda
from papa.reporting.wording import NOTHING, fraction_label, order_label
from papa.spec.cells import constant_count
from papa.spec.orders import Head

COUNTED = "Layers and heads are counted from 0, as in head orders, exports and the library."
NO_PATTERN = "none"


@dataclass(frozen=True)
class HeadsOfEncoder:
    """Everything a report shows of the heads of one encoder on one task.

    Attributes:
        encoder, task: as in tables.
        matrices: the average of their attention, not normalised.
        seen: which pairs of slots the average covers.
        special: the slot of [CLS], then those of [SEP].
        patterns: what each matrix looks like (paper, Section 5.1).
        lambdas: λ of every head by seed; None where none was trained (paper, Section 3.2).
        orders: by name, the study's head orders that are the same for every seed: all heads, the
            first to become constant first.
    """

    encoder: str
    task: str
    matrices: Float[Tensor, "layers heads slots slots"]
    seen: Bool[Tensor, "slots slots"]
    special: tuple[int, ...]
    patterns: HeadPatterns
    lambdas: TrainedLambda | None
    orders: Mapping[str, Sequence[Head]]

    def table(self, fractions: Sequence[float]) -> pandas.DataFrame:
        """A row for every head, by layer and head.

        Args:
            fractions: the study's input-dependent fractions.

        Returns:
            The columns ``layer`` and ``head`` (from 0), ``lambda`` (the mean over seeds; nan where
            none was trained), ``lambda from`` and ``lambda to`` (its 95 % interval; nan for one
            seed), ``pattern``, and for each head order ``place, <order>`` (from 1: the first to
            become constant) and ``constant at, <order>``, the fractions at which the head is
            constant.
        """
        layers, heads = self.matrices.shape[:2]
        rows = pandas.DataFrame([(layer, head) for layer in range(layers) for head in range(heads)])
        rows.columns = ["layer", "head"]
        values = [np.full((layers, heads), np.nan)] * 3
        if self.lambdas is not None:
            values = [self.lambdas.mean, *self.lambdas.interval]
        for name, column in zip(("lambda", "lambda from", "lambda to"), values, strict=True):
            rows[name] = column.flatten().round(6)
        rows["pattern"] = [
            self._pattern(layer, head) for layer in range(layers) for head in range(heads)
        ]
        for name, order in self.orders.items():
            positions = {tuple(head): position for position, head in enumerate(order)}
            own = [positions[head] for head in zip(rows["layer"], rows["head"], strict=True)]
            rows[f"place, {order_label(name)}"] = [position + 1 for position in own]
            rows[f"constant at, {order_label(name)}"] = [
                _constant_at(position, len(order), fractions) for position in own
            ]
        return rows

    def _pattern(self, layer: int, head: int) -> str:
        patterns, at = self.patterns, (layer, head)
        names = (
            [f"diagonal {int(patterns.offset[at]):+d}".replace("+0", "0")]
            if patterns.diagonal[at]
            else []
        )
        if patterns.special[at]:
            names.append("[CLS]" if patterns.cls_mass[at] > patterns.sep_mass[at] else "[SEP]")
        return (
            ", ".join(names + (["concentrated"] if patterns.concentrated[at] else [])) or NO_PATTERN
        )


def _constant_at(position: int, heads: int, fractions: Sequence[float]) -> str:
    constant = [
        fraction
        for fraction in sorted(fractions, reverse=True)
        if position < constant_count(fraction, heads)
    ]
    return ", ".join(map(fraction_label, constant)) or NOTHING
