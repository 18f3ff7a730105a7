"""What is trained on a native head to score its heads: λ, L0 gates and causal gates."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from papa.errors import SpecError
from papa.heads.substitutes import Mixed
from papa.native.batches import Rows
from papa.native.losses import WORDS
from papa.native.passes import NativeHead
from papa.probes.training import Learner, seed_of, single_seed_window, train
from papa.progress import OnEpoch, ignore_epoch
from papa.ranking.causal_gates import CausalGateScores
from papa.ranking.head_scores import HeadScores
from papa.ranking.learned import GATE_COST, drawn_gates, open_probability
from papa.ranking.loss_scores import LossRequest
from papa.spec import ProbeSpec, RankingSpec

NativeRequest: TypeAlias = LossRequest[NativeHead]
"""Which heads of a native head are scored, and how."""
FunctionOfTheta = Callable[[Float[Tensor, "layers heads"]], Float[Tensor, "..."]]
CAUSAL_GATE_PULL = 0.01
"""Nats of the mean loss per unit of a causal gate's logit: gates that change it by less give way.
"""
CAUSAL_GATE_BOUND = 4.0
"""How far logits are pulled."""
CAUSAL_GATE_STEPS = 240
"""Steps of AdamW in each of the three runs of causal gates: at a rate of .05 a gate needs 160 from
one bound of the pull to the other."""
_WINDOW = 20
"""Steps over which a gate's movement is judged."""


def train_shares(
    request: NativeRequest,
    *,
    shares: FunctionOfTheta = torch.sigmoid,
    penalty: FunctionOfTheta | None = None,
    start: Float[np.ndarray, "layers heads"] | None = None,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Float[Tensor, "layers heads"]]:
    """Train θ, a number for every unit that says how much of its attention it keeps, by the loss of
    a native head.

    Args:
        request: The native head, its texts, and its ``training``.
        shares: From θ to the share of attention that each unit keeps.
        penalty: From θ to what is added to the mean loss; None adds nothing.
        start: The shares before the first step; None begins at θ = 0.
        on_epoch: Called after each epoch.

    Returns:
        θ after every step.
    """
    native = request.loss
    rows = request.rows
    spec = request.training
    assert spec is not None
    theta = nn.Parameter(torch.zeros(native.size, device=native.device))
    if start is not None:
        theta.data = torch.from_numpy(start).logit().float().to(native.device)
    by_step: list[Float[Tensor, "layers heads"]] = []

    def losses(minibatch: Rows, epoch: int, number: int) -> Float[Tensor, " 1"]:
        total = 0.0
        answers = 0
        theta.grad = torch.zeros_like(theta)
        for batch in native.gradient_batches(minibatch):
            with torch.enable_grad():
                mix = Mixed(request.substitute, shares(theta))
                loss, lengths = native.summed(batch, mix, native.units)
                if not loss.requires_grad:
                    raise SpecError("the score has no gradient, which training needs: use 'effect'")
                answers_of_batch = int(lengths.sum())
                if penalty is not None:
                    loss = loss + penalty(theta).to(loss.device) * answers_of_batch
            # A batch may hold no token that counts, such as a text of one, or no masked word.
            if answers_of_batch:
                theta.grad += torch.autograd.grad(loss, theta)[0]
                total += loss.item()
                answers += answers_of_batch
        theta.grad /= max(answers, 1)
        return torch.tensor([total / max(answers, 1)], device=theta.device)

    def after_step(done: int, total: int) -> None:
        by_step.append(theta.detach().clone().cpu())
        request.progress(done, total)

    rows_per_window = max(len(rows), spec.batch_size)
    train(
        [Learner([{"params": [theta]}], [request.seed])],
        single_seed_window(rows, losses, rows_per_window // spec.batch_size),
        spec,
        rows=len(rows),
        rows_per_window=rows_per_window,
        progress=after_step,
        on_epoch=on_epoch,
    )
    return by_step


def train_lambda(
    request: NativeRequest, on_epoch: OnEpoch = ignore_epoch
) -> Float[np.ndarray, "layers heads"]:
    """Train λ of every head, with B = λA + (1 - λ)C (paper, Section 3.2), to keep a native head's
    loss low.
    """
    by_step = train_shares(request, on_epoch=on_epoch)
    return by_step[-1].sigmoid().double().numpy()


def train_gates(request: NativeRequest) -> HeadScores:
    """Train L0 gates on a native head, as ``papa.ranking.learned.gates`` on a probe: how likely
    each head's gate is to stay open, where every open gate costs something.
    """
    assert request.training is not None
    generator = torch.Generator().manual_seed(seed_of(request.seed, 2))
    by_step = train_shares(
        request,
        shares=lambda location: drawn_gates(location, generator),
        penalty=lambda location: GATE_COST * open_probability(location).sum(),
    )
    values = open_probability(by_step[-1]).double().numpy()
    return HeadScores(values[None], evaluations=2 * request.training.epochs)


def train_causal_gates(request: NativeRequest) -> CausalGateScores:
    """Fit gates g of gA·V + (1-g)·substitute to the loss alone; from there once with a pull to 1
    (G⁺) and once to 0 (G⁻). Raises a SpecError unless the loss is a language model's.
    """
    assert request.training is not None
    if request.loss.loss is not WORDS:
        raise SpecError(
            "causal_gates needs the loss of a language model: give a causal model, or labels "
            "of masked words"
        )

    def run(number: int) -> NativeRequest:
        """Return the request of one of three runs, which reports a third of the progress."""
        return replace(
            request, progress=lambda done, total: request.progress(number * total + done, 3 * total)
        )

    by_step = train_shares(run(0))
    # A gate that lies beyond the reach of the pull would come back too late.
    farthest = 1 / (1 + math.exp(-CAUSAL_GATE_BOUND))
    start = by_step[-1].sigmoid().double().numpy().clip(1 - farthest, farthest)
    settled = np.ones(request.loss.size, dtype=bool)
    means: list[Float[np.ndarray, "layers heads"]] = []
    for number, pull in enumerate((CAUSAL_GATE_PULL, -CAUSAL_GATE_PULL), start=1):

        def penalty(theta: Tensor, pull: float = pull) -> Tensor:
            return -pull * theta.clamp(-CAUSAL_GATE_BOUND, CAUSAL_GATE_BOUND).sum()

        by_step = train_shares(run(number), penalty=penalty, start=start)
        logits = torch.stack(by_step).double().numpy()
        means.append((1 / (1 + np.exp(-logits[-_WINDOW:]))).mean(axis=0))
        settled &= has_settled(logits, request.training.learning_rate)
    pulled_open, pulled_closed = means
    return CausalGateScores(
        pulled_closed[None],
        pulled_open=pulled_open,
        settled=settled,
        evaluations=6 * request.training.epochs,
    )


def training_spec(method: str, ranking: RankingSpec, probe: ProbeSpec, texts: int) -> ProbeSpec:
    """Return how a method trains θ on so many texts; where no epochs are set, causal gates take as
    many as ``CAUSAL_GATE_STEPS`` need.
    """
    spec = ranking.training(probe)
    if method == "causal_gates" and ranking.epochs is None:
        epochs = math.ceil(CAUSAL_GATE_STEPS / math.ceil(texts / spec.batch_size))
        spec = spec.model_copy(update={"epochs": epochs})
    return spec


def has_settled(
    logits: Float[np.ndarray, "steps layers heads"], rate: float
) -> Bool[np.ndarray, "layers heads"]:
    """Return whether each gate's logit moved, from one window of steps to the next, less than a
    fifth of what steady steps of AdamW would move it; of fewer steps than two windows none has.
    """
    if len(logits) < 2 * _WINDOW:
        return np.zeros(logits.shape[1:], dtype=bool)
    before = logits[-2 * _WINDOW : -_WINDOW].mean(axis=0)
    moved = np.abs(logits[-_WINDOW:].mean(axis=0) - before)
    return moved < 0.2 * rate * _WINDOW
