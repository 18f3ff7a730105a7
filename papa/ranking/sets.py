"""Methods that read a loss: how it changes as a head is turned down; and what sets of heads are
worth: the effect of each head, a greedy order, Shapley values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from papa.heads.substitutes import Mixed, Zeros
from papa.progress import Progress, ignore_progress
from papa.ranking.asked import Asked
from papa.ranking.seeds import HeadScores, rows_of_seed
from papa.spec.orders import Head

TOLERANCE = 0.01
"""Of v(all) - v(none): an order ends once what is left of it is worth less."""
_VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""
Value = Callable[[Set[Head]], float]
"""v: from the heads that stay input-dependent."""


def gradient(asked: Asked) -> HeadScores:
    """E_x |∂L(x)/∂g_h| at g = 1 (Michel et al., 2019, Section 4.1, Equation 2): L(x) is the loss of
    the probe, or of the model's own head, on one input, the mean over its labels.

    It equals |Σ ctx · ∂L/∂ctx| over tokens and width, with ctx what the head puts out. The authors'
    code takes the absolute value at each token and adds those up, and divides by the norm of each
    layer; neither is done here.
    """
    loss, (layers, heads) = asked.loss(), asked.constants.values.shape[:2]
    found, done = list[np.ndarray](), 0
    for rows in loss.batches(np.sort(asked.rows)):
        # Each input has gates of its own.
        gates = torch.ones(layers, len(rows), heads, device=loss.device, requires_grad=True)
        summed, labels = loss(rows, Mixed(Zeros(), gates), [*np.ndindex(layers, heads)])
        (of_gates,) = torch.autograd.grad(summed, gates)
        # An input without a label of its tokens has no loss.
        by_label = of_gates.abs().cpu() / labels.cpu().to(of_gates.dtype).clamp(min=1)[:, None]
        found.append(by_label.double().numpy())
        done += len(rows)
        asked.progress(done, len(asked.rows))
    of_inputs = np.concatenate(found, axis=1)
    error = of_inputs.std(axis=1, ddof=1) / np.sqrt(done) if done > 1 else None
    return HeadScores(of_inputs.mean(axis=1)[None], error, done, 2)


class LossValue:
    """v(S): the negative mean loss of a frozen probe, or of the model's own head, on a sample of
    training rows, while all heads outside of S are constant.
    """

    def __init__(self, asked: Asked) -> None:
        self.size, self.evaluations = asked.constants.values.shape[:2], 0
        self.heads: list[Head] = [*np.ndindex(*self.size)]
        self._loss = asked.loss()
        self._constants = asked.constants.to(self._loss.device)
        count = asked.ranking.rows or _VALUED_ROWS
        rows = rows_of_seed(len(asked.corpus.split("train")), count, asked.seed)
        self._batches = [*self._loss.batches(np.sort(rows))]

    @torch.inference_mode()
    def __call__(self, own: Set[Head]) -> float:
        heads = [head for head in self.heads if head not in own]
        found = [self._loss(rows, self._constants, heads) for rows in self._batches]
        self.evaluations += 1
        return -sum(float(summed) for summed, _ in found) / sum(int(n.sum()) for _, n in found)

    def scores(
        self, values: Float[np.ndarray, " heads"], errors: Any = None, draws: int = 0
    ) -> HeadScores:
        """Of all heads in turn."""
        error = None if errors is None else errors.reshape(self.size)
        return HeadScores(values.reshape(1, *self.size), error, draws, self.evaluations)


def effect(asked: Asked) -> HeadScores:
    """v(all) - v(all without the head), in units of the loss (after Michel et al., 2019, Section
    3.2): 0 for a head that is as good constant, below where it is better.
    """
    value = LossValue(asked)
    everyone, lost = frozenset(value.heads), list[float]()
    whole = value(everyone)
    for head in value.heads:
        lost.append(whole - value(everyone - {head}))
        asked.progress(len(lost), len(value.heads))
    return value.scores(np.array(lost))


def greedy(asked: Asked) -> HeadScores:
    """The greedy order: at each step the head whose becoming constant costs least, while those of
    earlier steps are constant; a score is a place in it.
    """
    value, evaluations = LossValue(asked), asked.ranking.evaluations
    return value.scores(greedy_places(value, value.heads, evaluations, asked.progress))


def shapley(asked: Asked) -> HeadScores:
    """What heads add to the value of others, over all orders of joining (Held & Yang, 2022)."""
    value = LossValue(asked)
    given = value, value.heads, asked.ranking.evaluations
    return value.scores(*shapley_values(*given, asked.seed, progress=asked.progress))


def greedy_places(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    progress: Progress = ignore_progress,
) -> Float[np.ndarray, " heads"]:
    """The place of every head in the order in which they become constant, from 0.

    Where there are too few evaluations to choose one head at each step, several become constant
    together, as few as evaluations allow and the cheapest first.

    Args:
        evaluations: how often v may be asked at most: ``ScoringMethod.least`` or more.
    """
    # The last step needs no choice; where evaluations are too few for any, all are one step.
    needed = {size: sum(range(len(heads), 1, -size)) for size in range(1, len(heads) + 1)}
    together = next((size for size in needed if needed[size] <= evaluations), len(heads))
    left, places, done = sorted(heads), dict[Head, int](), 0
    while left:
        costs = dict.fromkeys(left, 0.0)
        for head in left if len(left) > 1 else ():
            costs[head] = -value(frozenset(left) - {head})
            done += 1
            progress(done, needed[together])
        for head in sorted(left, key=costs.__getitem__)[:together]:
            places[head] = len(places)
            left.remove(head)
    return np.array([places[head] for head in heads], dtype=np.float64)


def shapley_values(
    value: Value,
    heads: Sequence[Head],
    evaluations: int,
    seed: int,
    *,
    tolerance: float = TOLERANCE,
    progress: Progress = ignore_progress,
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"], int]:
    """The Shapley value of every head, its standard error, and from how many draws it is.

    In an order heads become constant one after the other; what v loses is the share of that head.
    Orders are drawn, each with its reverse (antithetic sampling); such a pair gives one draw, and
    draws give the error. Where an order is cut short, as less than ``tolerance`` of v(all) -
    v(none) is left (Ghorbani & Zou, 2019, Section 3.2), that is divided among its last heads: in
    every order shares add up to v(all) - v(none).
    """
    everyone, generator = frozenset(heads), np.random.default_rng(seed)
    best, worst = value(everyone), value(frozenset[Head]())
    done, draws = 2, list[Float[np.ndarray, " heads"]]()
    while done + 2 * (len(heads) - 1) <= evaluations and len(draws) < evaluations:
        order, shares = generator.permutation(len(heads)), np.zeros(len(heads))
        for walk in (order, order[::-1]):
            left, before = everyone, best
            for step, index in enumerate(walk):
                if index == walk[-1] or abs(before - worst) < tolerance * abs(best - worst):
                    shares[walk[step:]] += (before - worst) / (len(walk) - step)
                    break
                left = left - {heads[index]}
                after = value(left)
                shares[index] += before - after
                before, done = after, done + 1
                progress(done, evaluations)
        draws.append(shares / 2)
    progress(evaluations, evaluations)
    found = np.stack(draws)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found)), len(found)
