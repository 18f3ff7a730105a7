"""The one training loop, for several seeds at once (paper, Section 3.3 and App. B).

The optimiser is set as the authors' Trainer sets it (docs/fidelity.md). A permutation that all
seeds share cuts an epoch into windows of rows, inside which each seed has its own order: features
can be computed a window at a time and serve every seed, with the same batches stored or not.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from papa.cores import free_threads, map_in_threads
from papa.errors import SpecError
from papa.models.encoder import numbers_of
from papa.probes.features import FeatureSource
from papa.probes.probes import Probe
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.spec import ProbeSpec

Rows = Int[np.ndarray, " rows"]
SummedLoss = tuple[Float[Tensor, ""], Int[Tensor, " rows"]]
"""The sum of the losses of some rows, through which gradients pass; and how many losses each row
has.
"""
MinibatchLosses = Callable[[Int[Tensor, "seeds batch"], int], Float[Tensor, " seeds"]]
"""Returns the loss of each seed on its minibatch, and adds its gradients to ``.grad``. Arguments:
the positions of the minibatch's rows in a window; the number of the step in the window, from 0.
"""
OpenWindow = Callable[[Rows, int, int], Sequence[MinibatchLosses]]
"""Opens a window, as by computing the features of its rows; returns what computes the losses of
each learner there. Arguments: the rows; the epoch; the number of the window in it, both from 0.
"""
Groups = list[dict[str, Any]]
"""Parameters with settings of their own, as optimisers of PyTorch take them."""
_STEPS_IN_TURN = 8
"""How many steps a learner takes before the next one has its turn: starting a thread and counting
idle workers then cost little beside them."""


@dataclass(frozen=True)
class Learner:
    """What one optimizer trains.

    Attributes:
        groups: The parameters; of n seeds, each with a first axis of n.
        seeds: Each seed has an order of rows of its own.
    """

    groups: Groups
    seeds: Sequence[int]


def seed_of(*entropy: int) -> int:
    """Return a seed for a generator of PyTorch that follows from several numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])


def probe_window(probes: Sequence[Probe], source: FeatureSource) -> OpenWindow:
    """Return what opens windows of probes, each of one or more seeds, which share the features."""

    def window(rows: Rows, epoch: int, index: int) -> Sequence[MinibatchLosses]:
        # One seed for the encoder's dropout: all probes share the pass.
        features, positions = source.window(rows, dropout_seed=epoch * 2**20 + index)

        def losses_of(probe: Probe) -> MinibatchLosses:
            window_seeds = [seed_of(seed, epoch, index) for seed in probe.seeds]

            def losses(batch: Int[Tensor, "seeds batch"], step: int) -> Float[Tensor, " seeds"]:
                dropout_seeds = [seed_of(window_seed, step) for window_seed in window_seeds]
                seed_losses = probe.losses(features, positions[batch], dropout_seeds)
                seed_losses.sum().backward()
                return seed_losses.detach()

            return losses

        return [losses_of(probe) for probe in probes]

    return window


def single_seed_window(
    rows: Rows, losses: Callable[[Rows, int, int], Float[Tensor, " 1"]], steps: int
) -> OpenWindow:
    """Return what opens windows of one seed.

    Args:
        rows: All rows.
        losses: Takes a minibatch's rows, epoch, and number in the epoch.
        steps: How many minibatches a window has.
    """

    def window(members: Rows, epoch: int, index: int) -> Sequence[MinibatchLosses]:
        first = index * steps
        return [lambda batch, step: losses(rows[members[batch[0].numpy()]], epoch, first + step)]

    return window


def train(
    learners: Sequence[Learner],
    open_window: OpenWindow,
    spec: ProbeSpec,
    *,
    rows: int,
    rows_per_window: int,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> None:
    """Train for all epochs, by windows of rows that each seed sees in an order of its own.

    Args:
        learners: What is trained; none depends on another, so any number of threads trains them
            with equal results.
        open_window: Opens a window of rows.
        spec: Epochs, batch size and the optimizer's settings.
        rows: How many rows there are.
        rows_per_window: How many rows a window has at most, a multiple of the batch size.
        progress: Called with (done, total) rows of all epochs; of one learner after every step.
        on_epoch: Called after each epoch.

    Raises:
        SpecError: A loss, or the norm of its gradient, is not finite.
    """
    trainings = [_Training(learner, spec, rows_per_window) for learner in learners]
    rows_done = 0
    for epoch in range(spec.epochs):
        # Sequences of different lengths may hash alike where the longer one ends in zeros; the
        # first number distinguishes this from a seed's order.
        shared = np.random.default_rng((0, epoch, 0)).permutation(rows)
        for index, start in enumerate(range(0, rows, rows_per_window)):
            # Ascending: features are read from the disk in one direction.
            members = np.sort(shared[start : start + rows_per_window])
            losses_of_learners = open_window(members, epoch, index)
            chains = [
                training.steps_of_window(losses, len(members), epoch, index)
                for training, losses in zip(trainings, losses_of_learners, strict=True)
            ]
            for step_rows in take_turns(chains):
                rows_done += step_rows
                progress(rows_done // len(learners), spec.epochs * rows)
            # A window's features are gone before the next one's are made.
            del losses_of_learners, chains
        losses_by_seed: dict[int, float] = {}
        for training in trainings:
            losses_by_seed |= training.end_epoch()
        on_epoch(epoch + 1, losses_by_seed)


def take_turns(chains: Sequence[Iterator[int]]) -> Iterator[int]:
    """Advance trainings some steps at a time, as many of them at once as there are unused cores;
    each chain takes a step when advanced, and yields the step's number of rows.

    Each takes its own steps one after the other, so the number of threads changes no result.
    """
    if len(chains) == 1:
        yield from chains[0]
        return
    waiting = deque(chains)
    while waiting:
        threads = min(free_threads(), len(waiting))
        side_by_side = [waiting.popleft() for _ in range(threads)]
        rows_of_chains = map_in_threads(
            lambda chain: list(islice(chain, _STEPS_IN_TURN)), side_by_side
        )
        for chain, rows_of_steps in zip(side_by_side, rows_of_chains, strict=True):
            if len(rows_of_steps) == _STEPS_IN_TURN:
                waiting.append(chain)
            yield from rows_of_steps


class _Training:
    """The optimizer of a learner, and its losses in the current epoch."""

    def __init__(self, learner: Learner, spec: ProbeSpec, rows_per_window: int) -> None:
        self.seeds = learner.seeds
        self.spec = spec
        self.steps_in_window = rows_per_window // spec.batch_size
        self.optimizer = adamw(learner.groups, spec)
        self.summed: Float[np.ndarray, " seeds"] = np.zeros(len(learner.seeds))
        self.steps = 0

    def steps_of_window(
        self, losses: MinibatchLosses, rows: int, epoch: int, index: int
    ) -> Iterator[int]:
        """Take the optimiser steps of a window of rows; yield the number of rows of each step."""
        orders = [
            np.random.default_rng((1, epoch, index, seed)).permutation(rows) for seed in self.seeds
        ]
        batches = torch.from_numpy(np.stack(orders)).split(self.spec.batch_size, dim=1)
        losses_by_step: list[Float[Tensor, " seeds"]] = []
        for step, batch in enumerate(batches):
            with numbers_of(self._location(epoch, index, step)):
                loss, norm = take_step(losses, batch, step, self.optimizer, self.spec.max_grad_norm)
            checked = torch.where(norm.isfinite(), loss, norm)
            losses_by_step.append(checked)
            # A GPU would have to be waited for: there a window is taken to its end.
            if checked.device.type == "cpu" and not checked.isfinite().all():
                break
            yield batch.shape[1]
        values = np.array([step_losses.tolist() for step_losses in losses_by_step])
        for step, number in np.argwhere(~np.isfinite(values)).tolist():
            raise SpecError(
                f"learning_rate: the loss of seed {self.seeds[number]} is {values[step, number]}, "
                f"or the norm of its gradient, in {self._location(epoch, index, step)}: lower the "
                f"rate, now {self.spec.learning_rate:g}"
            )
        self.summed += values.sum(axis=0)
        self.steps += len(values)

    def end_epoch(self) -> Mapping[int, float]:
        """Return each seed's mean loss in the epoch, and begin the next one."""
        means = dict(zip(self.seeds, (self.summed / self.steps).tolist(), strict=True))
        self.summed = np.zeros(len(self.seeds))
        self.steps = 0
        return means

    def _location(self, epoch: int, index: int, step: int) -> str:
        return f"minibatch {index * self.steps_in_window + step + 1} of epoch {epoch + 1}"


def take_step(
    losses: MinibatchLosses,
    batch: Int[Tensor, "seeds batch"],
    step: int,
    optimizer: torch.optim.Optimizer,
    max_grad_norm: float,
) -> tuple[Float[Tensor, " seeds"], Float[Tensor, " seeds"]]:
    """Take a step of every seed on its minibatch; return each one's loss, and its gradient norm
    before clipping.
    """
    optimizer.zero_grad(set_to_none=True)
    seed_losses = losses(batch, step)
    gradients: list[Tensor] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # Of a minibatch without any label.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            # Of each seed, along the first axis.
            gradients.append(parameter.grad.view(len(seed_losses), -1))
    norms = torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0)
    scales = (max_grad_norm / (norms + _NORM_EPSILON)).clamp(max=1)
    # A GPU would have to be waited for to learn whether there is anything to scale.
    if max_grad_norm and (scales.device.type != "cpu" or bool((scales < 1).any())):
        for gradient in gradients:
            gradient.mul_(scales[:, None])
    optimizer.step()
    return seed_losses, norms


_NORM_EPSILON = 1e-6
"""Added to a norm before it divides, as ``torch.nn.utils.clip_grad_norm_`` does."""


def adamw(groups: Groups, spec: ProbeSpec) -> torch.optim.AdamW:
    """Return AdamW at a constant rate, with ε where transformers 4, the authors' library, has it:
    that divides by (√v + ε) / √(1 - β₂ᵗ), PyTorch by √(v / (1 - β₂ᵗ)) + ε, so ε shrinks by step.
    """
    optimizer = torch.optim.AdamW(
        groups, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
    )
    _, beta = optimizer.defaults["betas"]
    steps = count(1)

    def set_epsilon(*_: object) -> None:
        epsilon = spec.adam_epsilon / math.sqrt(1 - beta ** next(steps))
        for group in optimizer.param_groups:
            group["eps"] = epsilon

    optimizer.register_step_pre_hook(set_epsilon)
    return optimizer
