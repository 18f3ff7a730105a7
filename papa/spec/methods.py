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
        frozen_probe: whether it reads the task's probe, trained on the encoder as it is.
        streamed: whether it is a mean over rows of attention matrices; these share a pass.
        reads: the settings of ``ranking`` that it follows, besides ``rows`` and ``seeds``.
        least: how many ``evaluations`` an estimate takes at least, of so many heads.
    """

    label: str
    function: str
    nothing: float = math.nan
    own_head: Literal["all", "with a loss", "none"] = "all"
    label_free: bool = False
    frozen_probe: bool = False
    streamed: bool = False
    reads: tuple[str, ...] = ()
    least: Callable[[int], int] = lambda heads: 0


_AT = "papa.ranking.scores"
_STREAMED = {
    "confidence": "confidence",
    "variance": "variance",
    "distance": "distance to constant",
    "output_distance": "distance of outputs to constant",
}
HEAD_SCORES: dict[str, ScoringMethod] = {
    **{
        name: ScoringMethod(label, f"{_AT}.streamed:{name}", label_free=True, streamed=True)
        for name, label in _STREAMED.items()
    },
    "gradient": ScoringMethod(
        "gradient", f"{_AT}.gradient:gradient", own_head="with a loss", frozen_probe=True
    ),
    # At least the value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": ScoringMethod(
        "Shapley values",
        f"{_AT}.sets:shapley",
        frozen_probe=True,
        reads=("evaluations",),
        nothing=0.0,
        least=lambda heads: 2 + 4 * (heads - 1),
    ),
    "greedy": ScoringMethod(
        "the steps of a greedy order",
        f"{_AT}.sets:greedy",
        frozen_probe=True,
        reads=("evaluations",),
        least=lambda heads: heads,
    ),
    "effect": ScoringMethod("effect", f"{_AT}.sets:effect", frozen_probe=True, nothing=0.0),
    "gates": ScoringMethod(
        "L0 gates", f"{_AT}.gates:gates", own_head="none", reads=("epochs", "learning_rate")
    ),
    "self_lambda": ScoringMethod(
        "λ that keeps hidden states",
        f"{_AT}.self_lambda:self_lambda",
        label_free=True,
        reads=("epochs", "learning_rate"),
    ),
}


def check_evaluations(method: str, evaluations: int, heads: int) -> None:
    """Refuse a budget that is too small for an estimate."""
    asked = HEAD_SCORES[method]
    if evaluations < asked.least(heads):
        raise SpecError(
            f"evaluations is {evaluations:,}, and {asked.label} of {heads} heads take "
            f"{asked.least(heads):,} at least: give as many"
        )
