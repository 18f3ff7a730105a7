"""The methods that score heads. An entry of ``HEAD_SCORES`` adds one, and an order with it: the
head with the smallest score becomes constant first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from papa.errors import SpecError

VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads.

    Attributes:
        label: its name in messages, tables and figures.
        module: what computes it: its ``score`` takes and gives what
            ``papa.ranking.scores.asked`` says; of a streamed one, its ``of_rows`` what
            ``papa.ranking.scores.streamed`` says.
        label_free: whether it reads text alone; others read labels too.
        streamed: whether it is a mean over rows of attention matrices; all of these share a pass
            over the text.
        reads: the settings of ``ranking`` that it follows, besides ``rows`` and ``seeds``.
        passes: about how many forward passes it takes over the rows, for plans: of one that reads
            ``evaluations`` or ``epochs``, for each of them.
        least_evaluations: how many it takes at least, of the number of heads; None where it has no
            budget.
    """

    label: str
    module: str
    label_free: bool = False
    streamed: bool = False
    reads: tuple[str, ...] = ()
    passes: float = 1
    least_evaluations: Callable[[int], int] | None = None


def _streamed(name: str, label: str) -> ScoringMethod:
    return ScoringMethod(label, f"papa.ranking.scores.{name}", label_free=True, streamed=True)


HEAD_SCORES: dict[str, ScoringMethod] = {
    "confidence": _streamed("confidence", "confidence"),
    "variance": _streamed("variance", "variance"),
    "distance": _streamed("distance", "distance to constant"),
    "gradient": ScoringMethod("gradient", "papa.ranking.scores.gradient", passes=3),
    # The value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values",
        "papa.ranking.scores.shapley",
        reads=("evaluations",),
        least_evaluations=lambda heads: 2 + 4 * (heads - 1),
    ),
    # Every head by itself.
    "greedy": ScoringMethod(
        "the steps of a greedy order",
        "papa.ranking.scores.greedy",
        reads=("evaluations",),
        least_evaluations=lambda heads: heads,
    ),
    "gates": ScoringMethod(
        "L0 gates", "papa.ranking.scores.gates", reads=("epochs", "learning_rate"), passes=3
    ),
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
