"""Every head of an encoder on a task: scores, pattern, and where it is constant, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.patterns import HeadPatterns, head_patterns
from papa.reporting.figures import method_label
from papa.reporting.wording import NOTHING, fraction_label
from papa.reporting.written import WrittenTable
from papa.spec.orders import Head

COUNTED = "Layers and heads are counted from 0, as in head orders, exports and the library."


@dataclass(frozen=True, eq=False)
class Average:
    """The average attention of one encoder's heads on one task, not normalised.

    Attributes:
        counts: inputs with tokens at both slots; or whether any had.
        special: the slot of [CLS], then those of [SEP].
    """

    encoder: str
    task: str
    matrices: Float[Tensor, "layers heads slots slots"]
    counts: Float[Tensor, "slots slots"] | Bool[Tensor, "slots slots"]
    special: tuple[int, ...]

    @property
    def patterns(self) -> HeadPatterns:
        """What the matrices look like (paper, Section 5.1)."""
        return head_patterns(self.matrices, self.counts, self.special)


def head_table(
    average: Average, heads: pandas.DataFrame, constant: Mapping[Head, Sequence[float]]
) -> WrittenTable:
    """A row for every head: its scores with their intervals, its pattern, and the fractions at
    which the first head order makes it constant.
    """
    layers, count = average.matrices.shape[:2]
    patterns = average.patterns
    rows: dict[Head, dict[str, str]] = {
        (layer, head): {"Layer": str(layer), "Head": str(head)}
        for layer, head in np.ndindex(layers, count)
    }
    for method, own in heads.groupby("method", sort=False):
        places = 3 - math.floor(math.log10(own["score"].abs().max() or 1))
        form = f".{min(max(places, 0), 9)}f"
        for row in own.to_dict("records"):
            low, high = row["low"], row["high"]
            ends = "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
            rows[row["layer"], row["head"]][method_label(method)] = f"{row['score']:{form}}{ends}"
    for at, row in rows.items():
        row["Pattern"] = _pattern(patterns, at)
        if constant:
            row["Constant at"] = ", ".join(map(fraction_label, constant.get(at, ()))) or NOTHING
    note = "Scores have their 95 % interval over seeds, where one is known."
    return WrittenTable.of(f"Heads: {average.encoder} · {average.task}", list(rows.values()), note)


def _pattern(patterns: HeadPatterns, at: Head) -> str:
    names = []
    if patterns.diagonal[at]:
        names.append(f"diagonal {int(patterns.offset[at]):+d}".replace("+0", "0"))
    if patterns.special[at]:
        names.append("[CLS]" if patterns.cls_mass[at] > patterns.sep_mass[at] else "[SEP]")
    if patterns.concentrated[at]:
        names.append("concentrated")
    return ", ".join(names) or NOTHING


def pattern_table(averages: Sequence[Average]) -> WrittenTable:
    """How many heads of each encoder and task show a pattern."""
    rows = [
        {
            "Encoder": one.encoder,
            "Task": one.task,
            **{name: f"{share:.3f}" for name, share in one.patterns.summary().items()},
        }
        for one in averages
    ]
    note = "Paper, Section 5.1; defined in docs/method.md."
    return WrittenTable.of("Patterns of the constant matrices", rows, note)
