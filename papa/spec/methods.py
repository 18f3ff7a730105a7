"""The methods that score heads. An entry of ``HEAD_SCORES`` adds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from papa.errors import SpecError


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads; the head with the smallest score becomes constant first.

    Attributes:
        label: its name in messages, tables and figures.
        module: what computes it: its ``score`` answers ``papa.ranking.scores.asked``.
        least_evaluations: how many it takes at least, of the number of heads; None where it has no
            budget.
    """

    label: str
    module: str
    least_evaluations: Callable[[int], int] | None = None


HEAD_SCORES: dict[str, ScoringMethod] = {
    # The value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values", "papa.ranking.scores.shapley", lambda heads: 2 + 4 * (heads - 1)
    ),
    # Every head by itself.
    "greedy": ScoringMethod(
        "the steps of a greedy order", "papa.ranking.scores.greedy", lambda heads: heads
    ),
    "gates": ScoringMethod("L0 gates", "papa.ranking.scores.gates"),
}


def check_evaluations(method: str, evaluations: int, heads: int) -> None:
    """Refuse a budget that is too small for an estimate.

    Args:
        method: a name in ``HEAD_SCORES``.
        evaluations: the budget.
        heads: of the whole encoder.

    Raises:
        SpecError: it is.
    """
    asked = HEAD_SCORES[method]
    least = asked.least_evaluations(heads) if asked.least_evaluations else 0
    if evaluations < least:
        raise SpecError(
            f"evaluations is {evaluations:,}, and {asked.label} of {heads} heads take {least:,} at "
            "least: give as many"
        )
