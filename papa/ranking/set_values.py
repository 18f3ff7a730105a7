"""Methods that score heads by values of sets of heads: effects, greedy orders, Shapley values."""

from collections.abc import Callable, Sequence, Set

import numpy as np
from jaxtyping import Float, Int

from papa.progress import Progress, ignore_progress
from papa.ranking.head_scores import HeadScores
from papa.ranking.loss_scores import ExampleValues, HeadLoss, LossRequest
from papa.scores.intervals import ratio_with_error
from papa.spec.orders import Head

SHAPLEY_TOLERANCE = 0.01
"""The share of v(all) - v(none) below which the last heads of an order are not evaluated."""
Value = Callable[[Set[Head]], float]
"""v(S): the value of the model while only the heads S depend on the input."""


class LossValue:
    """v(S): the negative mean loss on a sample while all heads outside of S output a substitute."""

    def __init__(self, request: LossRequest[HeadLoss]) -> None:
        self.size = request.loss.size
        self.heads: list[Head] = [*np.ndindex(*self.size)]
        self.evaluations = 0
        self._request = request

    def __call__(self, input_dependent: Set[Head]) -> float:
        (values,) = self.without([[head for head in self.heads if head not in input_dependent]])
        return -values.mean

    def without(
        self, head_sets: Sequence[Sequence[Head]], progress: Progress = ignore_progress
    ) -> list[ExampleValues]:
        """Return the loss of each text of the sample, with each set of heads replaced."""
        self.evaluations += len(head_sets)
        request = self._request
        rows = np.sort(request.valued_rows)
        return request.loss.values_of_sets(request.substitute, head_sets, rows, progress)

    def scores(
        self,
        values: Float[np.ndarray, " heads"],
        errors: Float[np.ndarray, " heads"] | None = None,
        samples: int = 0,
    ) -> HeadScores:
        """Return the scores of all heads, from those in the order of ``heads``."""
        error = None if errors is None else errors.reshape(self.size)
        by_seed = values.reshape(1, *self.size)
        return HeadScores(by_seed, error, samples=samples, evaluations=self.evaluations)


def effect(request: LossRequest[HeadLoss]) -> HeadScores:
    """v(all) - v(all without the head), in units of the loss (after Michel et al., 2019, Section
    3.2): 0 for a head that is as good constant, below where it is better. The standard error is
    over texts, where the loss has a value for each.
    """
    value = LossValue(request)
    whole, *without = value.without([[], *([head] for head in value.heads)], request.progress)
    lost = np.stack([values.sums - whole.sums for values in without])
    return effect_of_losses(lost, whole.lengths, value.size, by_text=request.loss.by_text)


def effect_of_losses(
    lost: Float[np.ndarray, "heads texts"],
    lengths: Int[np.ndarray, " texts"],
    size: tuple[int, int],
    *,
    by_text: bool,
) -> HeadScores:
    """Return the effect of every head, from what each text loses without it.

    Args:
        lost: By how much the sum of a text's losses grows.
        lengths: How many losses each sum is of.
        size: (layers, heads in each).
        by_text: Whether sums are of texts, so that a standard error follows.
    """
    counts = lengths.astype(np.float64)
    texts = len(counts)
    evaluations = len(lost) + 1
    if not by_text or texts < 2:
        mean = lost.sum(axis=1) / max(counts.sum(), 1)
        return HeadScores(mean.reshape(1, *size), evaluations=evaluations)
    mean, error = ratio_with_error(
        texts,
        lost.sum(axis=1),
        (lost**2).sum(axis=1),
        (lost * counts).sum(axis=1),
        counts.sum(),
        (counts**2).sum(),
    )
    return HeadScores(
        mean.reshape(1, *size), error.reshape(size), samples=texts, evaluations=evaluations
    )


def greedy(request: LossRequest[HeadLoss]) -> HeadScores:
    """Return the greedy order: at each step the head whose becoming constant costs least."""
    value = LossValue(request)
    steps = greedy_positions(value, value.heads, request.evaluations, request.progress)
    return value.scores(steps)


def shapley(request: LossRequest[HeadLoss]) -> HeadScores:
    """Return what heads add to the value of others, over all orders of joining (Held & Yang,
    2022).
    """
    value = LossValue(request)
    values, errors, drawn = shapley_values(
        value, value.heads, request.evaluations, request.seed, progress=request.progress
    )
    return value.scores(values, errors, drawn)


def greedy_positions(
    value: Value, heads: Sequence[Head], evaluations: int, progress: Progress = ignore_progress
) -> Float[np.ndarray, " heads"]:
    """Return the position of every head in the order in which they become constant, from 0. Where
    ``evaluations`` are too few for one head a step, several become constant together, the cheapest
    first.
    """
    # With ``together`` heads a step, a step evaluates each head that remains; the last step needs
    # no choice. Where evaluations are too few for any, all are one step.
    needed = {size: sum(range(len(heads), 1, -size)) for size in range(1, len(heads) + 1)}
    together = next((size for size in needed if needed[size] <= evaluations), len(heads))
    remaining = sorted(heads)
    positions: dict[Head, int] = {}
    done = 0
    while remaining:
        costs = dict.fromkeys(remaining, 0.0)
        for head in remaining if len(remaining) > 1 else ():
            costs[head] = -value(frozenset(remaining) - {head})
            done += 1
            progress(done, needed[together])
        for head in sorted(remaining, key=costs.__getitem__)[:together]:
            positions[head] = len(positions)
            remaining.remove(head)
    return np.array([positions[head] for head in heads], dtype=np.float64)


def shapley_values(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    seed: int,
    *,
    tolerance: float = SHAPLEY_TOLERANCE,
    progress: Progress = ignore_progress,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], int]:
    """Return the Shapley value of every head, its standard error, and from how many draws it is.

    Orders are drawn, each with its reverse (antithetic sampling): a pair is one draw. Where less
    than ``tolerance`` of v(all) - v(none) is left (Ghorbani & Zou, 2019, Section 3.2), it is
    divided among the order's last heads, so that shares add up.
    """
    all_heads = frozenset(heads)
    generator = np.random.default_rng(seed)
    best = value(all_heads)
    worst = value(frozenset[Head]())
    done = 2
    draws: list[Float[np.ndarray, " heads"]] = []
    while done + 2 * (len(heads) - 1) <= evaluations and len(draws) < evaluations:
        order = generator.permutation(len(heads))
        shares = np.zeros(len(heads))
        for walk in (order, order[::-1]):
            remaining = all_heads
            before = best
            for step, index in enumerate(walk):
                if index == walk[-1] or abs(before - worst) < tolerance * abs(best - worst):
                    shares[walk[step:]] += (before - worst) / (len(walk) - step)
                    break
                remaining = remaining - {heads[index]}
                after = value(remaining)
                shares[index] += before - after
                before = after
                done += 1
                progress(done, evaluations)
        draws.append(shares / 2)
    progress(evaluations, evaluations)
    values = np.stack(draws)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(draws)), len(draws)
