"""The orders in which heads become constant (paper, Sections 3.2 and 5.4), and the methods that
score heads, an entry each: the head with the smallest score becomes constant first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from papa.errors import SpecError
from papa.ranking.kv_groups import group_scores
from papa.spec import RankingSpec, StudySpec
from papa.spec.orders import REVERSED, Head, constant_count, module_of, scores_in


@dataclass(frozen=True)
class ScoringMethod:
    """One way to score heads.

    Attributes:
        label: What a score is, in tables and figures.
        function: ``module:name`` of what computes it from a ``ScoringRequest``; from a
            ``LossRequest`` where it uses a frozen probe or is for native heads alone; from
            ``AttentionRows`` where it is a row mean.
        native_tasks: The tasks of native heads that it supports: all; "with a loss": not those
            scored against the model's own answers; "words": language models.
        label_free: Whether it reads text alone.
        uses_frozen_probe: Whether it reads the loss of a probe of the plain encoder.
        is_row_mean: Whether it is a mean over rows of attention.
        is_deterministic: Whether seeds with the same rows have the same scores.
        evaluates_head_sets: Whether it reads the losses of sets of heads, on a sample of the rows.
        ranking_settings: The settings of ``ranking`` that it follows, besides ``rows`` and
            ``seeds``.
        in_studies: Whether studies and loaded encoders have it.
        in_memory: Whether in-memory models have it.
        minimum_evaluations: How many ``evaluations`` an estimate of so many heads takes at least.
    """

    label: str
    function: str
    native_tasks: Literal["all", "with a loss", "words"] = "all"
    label_free: bool = False
    uses_frozen_probe: bool = False
    is_row_mean: bool = False
    is_deterministic: bool = False
    evaluates_head_sets: bool = False
    ranking_settings: tuple[str, ...] = ()
    in_studies: bool = True
    in_memory: bool = True
    minimum_evaluations: Callable[[int], int] = lambda heads: 0

    @property
    def is_trained(self) -> bool:
        """Whether it trains a number for every head."""
        return "epochs" in self.ranking_settings

    def evaluations(self, ranking: RankingSpec, heads: int) -> int:
        """Return how often sets of heads may be evaluated, 0 for methods without such a limit.

        Args:
            ranking: Its ``evaluations``; None takes ``EVALUATIONS`` or more where more are needed.
            heads: How many heads, or groups of heads, are scored.

        Raises:
            SpecError: They are too few for an estimate.
        """
        if "evaluations" not in self.ranking_settings:
            return 0
        fewest = self.minimum_evaluations(heads)
        if ranking.evaluations is None:
            return max(EVALUATIONS, fewest)
        if ranking.evaluations < fewest:
            raise SpecError(
                f"evaluations is {ranking.evaluations:,}, and {heads:,} heads (or groups of heads) "
                f"by {self.label} take {fewest:,} at least: give as many, or leave it out"
            )
        return ranking.evaluations


EVALUATIONS = 2_000
"""The default number of evaluations of sets of heads, for models with up to 500 heads."""
_RANKING = "papa.ranking"
_COMPARED_UNITS = 512
"""The most units of which studies compute joint effects: GPT-2 medium has 384 heads."""
_row_mean = partial(ScoringMethod, label_free=True, is_row_mean=True, is_deterministic=True)
_trained = partial(ScoringMethod, ranking_settings=("epochs", "learning_rate"))
_evaluated = partial(ScoringMethod, uses_frozen_probe=True, evaluates_head_sets=True)
SCORING_METHODS: dict[str, ScoringMethod] = {
    "confidence": _row_mean("confidence", f"{_RANKING}.streamed:confidence"),
    "variance": _row_mean("variance", f"{_RANKING}.streamed:variance"),
    "distance": _row_mean("distance", f"{_RANKING}.streamed:distance"),
    "output_distance": _row_mean("output distance", f"{_RANKING}.streamed:output_distance"),
    "first_token_attention": _row_mean(
        "first-token attention", f"{_RANKING}.streamed:first_token_attention"
    ),
    # No model that studies load has learned sinks.
    "sink_share": _row_mean("sink share", f"{_RANKING}.streamed:sink_share", in_studies=False),
    "output_norm": _row_mean("output norm", f"{_RANKING}.streamed:output_norm"),
    # What compares answers with themselves has no gradient there.
    "gradient": ScoringMethod(
        "gradient",
        f"{_RANKING}.loss_scores:gradient",
        native_tasks="with a loss",
        uses_frozen_probe=True,
        is_deterministic=True,
    ),
    # At least the value of all heads, that of none, and two pairs of orders: an error takes two.
    "shapley": _evaluated(
        "Shapley value",
        f"{_RANKING}.set_values:shapley",
        ranking_settings=("evaluations",),
        minimum_evaluations=lambda heads: 4 * heads - 2,
    ),
    "greedy": _evaluated(
        "greedy step",
        f"{_RANKING}.set_values:greedy",
        is_deterministic=True,
        ranking_settings=("evaluations",),
        minimum_evaluations=lambda heads: heads,
    ),
    "effect": _evaluated("effect", f"{_RANKING}.set_values:effect", is_deterministic=True),
    "gates": _trained("L0 gate", f"{_RANKING}.learned:gates"),
    "causal_gates": _trained(
        "causal gate", "papa.native.training:train_causal_gates", native_tasks="words"
    ),
    "self_lambda": _trained(
        "λ of hidden states", f"{_RANKING}.learned:self_lambda", label_free=True, in_memory=False
    ),
}
Scores: TypeAlias = np.ndarray | None
"""[layers, heads]; None for orders that follow no scores."""
Draw: TypeAlias = int | Sequence[int]
"""The seed of a random order; of ``scores:FILE`` the positions of the heads in the order."""


@dataclass(frozen=True)
class HeadOrder:
    """One way to order heads.

    Attributes:
        label: The order in words.
        arrange: Sorts all heads, by their scores and by what the order is drawn from.
        scored_by: The method whose scores it follows; None for none.
        differs_by_seed: Whether each probe seed has an order of its own.
        reversed_label: The reverse order in words; "" is ``label``, reversed.
    """

    label: str
    arrange: Callable[[list[Head], Scores, Draw], list[Head]]
    scored_by: str | None = None
    differs_by_seed: bool = False
    reversed_label: str = ""


def _ascending(heads: list[Head], scores: Scores, draw: Draw) -> list[Head]:
    assert scores is not None
    # Sorting is stable: ties stay in the order of (layer, head).
    return sorted(heads, key=lambda head: float(scores[head]))


def _by_score(score: str, scored_by: str) -> HeadOrder:
    return HeadOrder(
        f"smallest {score} first",
        _ascending,
        scored_by=scored_by,
        reversed_label=f"largest {score} first",
    )


def _drawn(heads: list[Head], scores: Scores, draw: Draw) -> list[Head]:
    return [heads[index] for index in np.random.default_rng(draw).permutation(len(heads))]


def _as_listed(heads: list[Head], scores: Scores, draw: Draw) -> list[Head]:
    assert isinstance(draw, Sequence)
    return [heads[position] for position in draw]


HEAD_ORDERS: dict[str, HeadOrder] = {
    "lambda": _by_score("λ", "lambda"),
    "first_to_last": HeadOrder("first layer to last", lambda heads, scores, draw: heads),
    "last_to_first": HeadOrder(
        "last layer to first", lambda heads, scores, draw: sorted(heads, key=lambda head: -head[0])
    ),
    "random": HeadOrder("random", _drawn, differs_by_seed=True),
}


def order_named(order: str) -> HeadOrder:
    """Return the order of this name. Raises a SpecError where there is none."""
    if order.startswith(REVERSED):
        forward = order_named(order.removeprefix(REVERSED))
        return replace(
            forward,
            label=forward.reversed_label or f"{forward.label}, reversed",
            arrange=lambda heads, scores, draw: forward.arrange(heads, scores, draw)[::-1],
        )
    name = scores_in(order)
    if name is not None:
        return HeadOrder(name if module_of(name) else f"scores of {name}", _as_listed)
    if order in SCORING_METHODS:
        return _by_score(SCORING_METHODS[order].label, order)
    if order not in HEAD_ORDERS:
        raise SpecError(f"orders: there is no order '{order}'")
    return HEAD_ORDERS[order]


def is_known(order: str) -> bool:
    """Return whether there is an order of this name."""
    if order.startswith(REVERSED):
        return is_known(order.removeprefix(REVERSED))
    return scores_in(order) is not None or order in HEAD_ORDERS or order in SCORING_METHODS


def scoring_method(order: str) -> str | None:
    """Return the method whose scores an order follows: "lambda" or a key of ``SCORING_METHODS``;
    None for orders that follow no method.
    """
    return order_named(order).scored_by


def head_order(order: str, scores: Scores, layers: int, heads: int, draw: Draw = 0) -> list[Head]:
    """Return all heads as (layer, head), the first to become constant first."""
    unordered = [(layer, head) for layer in range(layers) for head in range(heads)]
    return order_named(order).arrange(unordered, scores, draw)


def has_joint_effects(keep: Sequence[float], units: int) -> bool:
    """Return whether a study by effect compares what its sets of heads cost together with what each
    costs: where a share leaves two constant, and units are so few that a pass for each is quick.
    """
    return units <= _COMPARED_UNITS and constant_count(min(keep), units) > 1


def draws_of(
    study: StudySpec, order: str, heads_per_unit: int = 1
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return the seeds of the study that share an order of units, and what ``head_order`` draws
    theirs from.
    """
    name = scores_in(order)
    if name is not None:
        (values,) = (scores.values for scores in study.scores if scores.name == name)
        by_unit = np.ravel(group_scores(np.array(values), heads_per_unit))
        return {study.probe_seeds: tuple(np.argsort(by_unit, kind="stable").tolist())}
    if order_named(order).differs_by_seed:
        return {(seed,): (study.ranking_seeds[0], seed) for seed in study.probe_seeds}
    return {study.probe_seeds: ()}
