"""The methods that score heads. An entry of ``HEAD_SCORES`` adds one, and an order with it: the
head with the smallest score becomes constant first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from papa.errors import SpecError

VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads.

    Attributes:
        label: its name in messages, tables and figures.
        function: ``module:name`` of what computes it: it takes and gives what
            ``papa.ranking.scores.asked`` says; of a streamed one, what
            ``papa.ranking.scores.streamed`` says.
        nothing: the score of a head that is as good constant; nan where none is known.
        own_head: which tasks of a model's own head it scores heads of: all; those with a loss of
            their own, as what compares answers with themselves has no gradient there; or none.
        label_free: whether it reads text alone; others read labels too.
        frozen_probe: whether it reads the task's probe, trained on the encoder as it is and then
            frozen, where the task has one.
        streamed: whether it is a mean over rows of attention matrices; all of these share a pass
            over the text, which draws nothing but a sample of rows.
        reads: the settings of ``ranking`` that it follows, besides ``rows`` and ``seeds``.
        passes: about how many forward passes it takes over the rows, for plans; of one that reads
            ``epochs``, or takes evaluations, theirs count.
        evaluations: how many sets of heads it values, of the number of heads and a budget; more
            than the budget where that is too small. None where it values none.
    """

    label: str
    function: str
    nothing: float = math.nan
    own_head: Literal["all", "with a loss", "none"] = "all"
    label_free: bool = False
    frozen_probe: bool = False
    streamed: bool = False
    reads: tuple[str, ...] = ()
    passes: float = 1
    evaluations: Callable[[int, int], int] | None = None


def greedy_evaluations(heads: int, together: int) -> int:
    """How often a set is valued where so many heads become constant at each step of a greedy order;
    the last needs no choice.
    """
    return sum(range(heads, 1, -together))


def greedy_step(heads: int, evaluations: int) -> int:
    """How many heads become constant at each step of a greedy order: as few as evaluations allow,
    all at once where they are too few for any.
    """
    allowed = (size for size in range(1, heads) if greedy_evaluations(heads, size) <= evaluations)
    return next(allowed, heads)


def _streamed(name: str, label: str) -> ScoringMethod:
    return ScoringMethod(
        label, f"papa.ranking.scores.streamed:{name}", label_free=True, streamed=True
    )


HEAD_SCORES: dict[str, ScoringMethod] = {
    "confidence": _streamed("confidence", "confidence"),
    "variance": _streamed("variance", "variance"),
    "distance": _streamed("distance", "distance to constant"),
    "output_distance": _streamed("output_distance", "distance of outputs to constant"),
    "gradient": ScoringMethod(
        "gradient",
        "papa.ranking.scores.gradient:gradient",
        own_head="with a loss",
        frozen_probe=True,
        passes=3,
    ),
    # At least the value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values",
        "papa.ranking.scores.sets:shapley",
        frozen_probe=True,
        reads=("evaluations",),
        nothing=0.0,
        evaluations=lambda heads, budget: max(budget, 2 + 4 * (heads - 1)),
    ),
    "greedy": ScoringMethod(
        "the steps of a greedy order",
        "papa.ranking.scores.sets:greedy",
        frozen_probe=True,
        reads=("evaluations",),
        evaluations=lambda heads, budget: greedy_evaluations(heads, greedy_step(heads, budget)),
    ),
    # All heads, and each alone constant.
    "effect": ScoringMethod(
        "effect",
        "papa.ranking.scores.sets:effect",
        frozen_probe=True,
        nothing=0.0,
        evaluations=lambda heads, budget: heads + 1,
    ),
    "gates": ScoringMethod(
        "L0 gates",
        "papa.ranking.scores.gates:gates",
        own_head="none",
        reads=("epochs", "learning_rate"),
    ),
    "self_lambda": ScoringMethod(
        "λ that keeps hidden states",
        "papa.ranking.scores.self_lambda:self_lambda",
        label_free=True,
        reads=("epochs", "learning_rate"),
    ),
}


def no_score_of_own(method: str, task: str, *, with_itself: bool) -> str | None:
    """Why a method scores no heads by what a model's own head answers, compared with the original's
    answers or with labels; None where it does.
    """
    asked = HEAD_SCORES[method]
    instead = "take effect, or a label-free one such as distance"
    if asked.own_head == "none":
        return f"{asked.label} are trained with a probe, and task {task} has head: own: {instead}"
    if asked.own_head == "with a loss" and with_itself:
        return (
            f"{asked.label} is that of a loss, and task {task} compares the model with itself, "
            f"where every one is 0: {instead}"
        )
    return None


def check_evaluations(method: str, evaluations: int, heads: int) -> None:
    """Refuse a budget that is too small for an estimate."""
    asked = HEAD_SCORES[method]
    least = asked.evaluations(heads, 0) if asked.evaluations else 0
    if "evaluations" in asked.reads and evaluations < least:
        raise SpecError(
            f"evaluations is {evaluations:,}, and {asked.label} of {heads} heads take {least:,} at "
            "least: give as many"
        )
