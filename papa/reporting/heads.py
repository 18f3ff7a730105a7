"""The heads of one encoder on one task: matrices, λ, places in head orders and patterns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas
from jaxtyping import Bool, Float
from torch import Tensor

from papa.attention.patterns import HeadPatterns
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.reporting.wording import NOTHING, WrittenTable, fraction_label, order_label
from papa.spec.cells import constant_count
from papa.spec.methods import HEAD_SCORES
from papa.spec.orders import Head

COUNTED = "Layers and heads are counted from 0, as in head orders, exports and the library."
NO_PATTERN, LAMBDA = "none", "λ"


@dataclass(frozen=True, eq=False)
class HeadScore:
    """A score of every head, with its 95 % interval and the score that says nothing; nan where
    there is none.
    """

    name: str
    values: Float[np.ndarray, "layers heads"]
    low: Float[np.ndarray, "layers heads"]
    high: Float[np.ndarray, "layers heads"]
    nothing: float = math.nan

    @property
    def told_apart(self) -> bool:
        """Whether it can be told which heads differ from what says nothing."""
        return not (math.isnan(self.nothing) or np.isnan(self.low).any())

    @property
    def nearer_end(self) -> Float[np.ndarray, "layers heads"]:
        """The end of each interval that is nearer to what says nothing, or that, where the
        interval holds it; the score itself where this cannot be told."""
        return np.clip(self.nothing, self.low, self.high) if self.told_apart else self.values

    @property
    def legend(self) -> list[str]:
        """What colour and dots of its map say, in lines; a dot is no more than one interval."""
        if not self.told_apart:
            known = "no interval" if np.isnan(self.low).any() else "its interval is in the table"
            return [f"Colour: {self.name} itself; {known}."]
        dots, heads = int((self.nearer_end != self.nothing).sum()), self.values.size
        return [
            f"Dot, colour: the 95 % interval leaves {self.nothing:g} out.",
            f"{dots} of {heads} heads; by chance about {0.05 * heads:.2g} would.",
        ]

    def written(self) -> list[str]:
        """Of every head the score, with the ends of its interval where it has one."""
        largest = float(np.abs(self.values).max())
        places = 3 - math.floor(math.log10(largest)) if largest else 1
        form = f".{min(max(places, 0), 9)}f"
        ends = zip(self.values.flat, self.low.flat, self.high.flat, strict=True)
        return [
            f"{value:{form}}" + ("" if math.isnan(low) else f" ({low:{form}} to {high:{form}})")
            for value, low, high in ends
        ]


@dataclass(frozen=True)
class HeadsOfEncoder:
    """Everything a report shows of the heads of one encoder on one task.

    Attributes:
        matrices: the average of their attention, not normalised.
        seen: which pairs of slots the average covers.
        special: the slot of [CLS], then those of [SEP].
        orders: by name, the study's head orders that are the same for every seed.
        given: the scores that the study names, by their names.
        computed: scores by methods of ``HEAD_SCORES``.
    """

    encoder: str
    task: str
    matrices: Float[Tensor, "layers heads slots slots"]
    seen: Bool[Tensor, "slots slots"]
    special: tuple[int, ...]
    patterns: HeadPatterns
    lambdas: TrainedLambda | None
    orders: Mapping[str, Sequence[Head]]
    given: Mapping[str, Float[np.ndarray, "layers heads"]] = field(default_factory=dict)
    computed: Mapping[str, HeadScores] = field(default_factory=dict)

    def scores(self) -> list[HeadScore]:
        """λ, where it was trained, and the scores that the study names or computes."""
        found = []
        if self.lambdas is not None:
            found.append(HeadScore(LAMBDA, self.lambdas.mean, *self.lambdas.interval, nothing=0.5))
        for name, values in self.given.items():
            unknown = np.full(values.shape, np.nan)
            found.append(HeadScore(name, values, unknown, unknown))
        for method, scores in self.computed.items():
            asked = HEAD_SCORES[method]
            found.append(HeadScore(asked.label, scores.mean, *scores.interval, asked.nothing))
        return found

    def table(self, fractions: Sequence[float]) -> pandas.DataFrame:
        """A row for every head: ``layer`` and ``head`` (from 0); of each score its mean over seeds
        by its name, ``lambda`` or another, and where it has a 95 % interval ``<name> from`` and
        ``<name> to``; ``pattern``; and for each head order ``place, <order>`` (from 1: the first to
        become constant) and ``constant at, <order>``, the fractions at which it is.
        """
        places = list(np.ndindex(*self.matrices.shape[:2]))
        rows = pandas.DataFrame(places, columns=["layer", "head"])
        for score in self.scores():
            name = "lambda" if score.name == LAMBDA else score.name
            ends = {"": score.values, " from": score.low, " to": score.high}
            for end, column in ends.items():
                if not np.isnan(column).all():
                    rows[f"{name}{end}"] = [float(f"{value:.6g}") for value in column.flat]
        rows["pattern"] = [self._pattern(place) for place in places]
        for name, order in self.orders.items():
            positions = {tuple(head): position for position, head in enumerate(order)}
            own = [positions[place] for place in places]
            rows[f"place, {order_label(name)}"] = [position + 1 for position in own]
            rows[f"constant at, {order_label(name)}"] = [
                _constant_at(position, len(order), fractions) for position in own
            ]
        return rows

    def _pattern(self, at: tuple[int, ...]) -> str:
        patterns, names = self.patterns, []
        if patterns.diagonal[at]:
            names.append(f"diagonal {int(patterns.offset[at]):+d}".replace("+0", "0"))
        if patterns.special[at]:
            names.append("[CLS]" if patterns.cls_mass[at] > patterns.sep_mass[at] else "[SEP]")
        if patterns.concentrated[at]:
            names.append("concentrated")
        return ", ".join(names) or NO_PATTERN


def pattern_table(heads: Sequence[HeadsOfEncoder]) -> WrittenTable:
    """How many heads of each encoder and task show a pattern (paper, Section 5.1)."""
    rows = [
        {
            "Encoder": group.encoder,
            "Task": group.task,
            **{name: f"{share:.3f}" for name, share in group.patterns.summary().items()},
        }
        for group in heads
    ]
    note = "Paper, Section 5.1; defined in docs/method.md."
    return WrittenTable.of("Patterns of the constant matrices", rows, note)


def _constant_at(position: int, heads: int, fractions: Sequence[float]) -> str:
    constant = [
        fraction
        for fraction in sorted(fractions, reverse=True)
        if position < constant_count(fraction, heads)
    ]
    return ", ".join(map(fraction_label, constant)) or NOTHING
