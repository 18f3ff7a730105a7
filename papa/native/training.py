"""What is trained on a native head to score its heads: λ, L0 gates and causal gates."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from papa.errors import SpecError
from papa.heads.substitutes import Mixed, Substitute
from papa.native.batches import Rows
from papa.native.losses import WORDS
from papa.native.passes import NativeHead
from papa.probes.training import Learner, seed_of, single_seed_window, train
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.learned import GATE_COST, drawn_gates, open_probability
from papa.spec import ProbeSpec, RankingSpec

OfTheta = Callable[[Float[Tensor, "layers heads"]], Float[Tensor, "..."]]
CAUSAL_GATE_PULL = 0.01
"""On the logit of every causal gate, in nats of the mean loss: gates that change it by less give
way."""
CAUSAL_GATE_BOUND = 4.0
"""How far logits are pulled."""
CAUSAL_GATE_STEPS = 240
"""Of AdamW in each of the three runs of causal gates: at a rate of .05 a gate needs 160 from one
bound of the pull to the other."""
_WINDOW = 20
"""Steps over which a gate's movement is judged."""


@dataclass(frozen=True)
class ThetaTraining:
    """How θ, a number for every unit, is trained on a native head.

    Attributes:
        native: The native head.
        substitute: What heads output as far as they do not keep their attention.
        rows: The texts.
        spec: Learning rate, texts in a mini-batch, and epochs.
        seed: Of the order of the texts, and of what is drawn.
    """

    native: NativeHead
    substitute: Substitute
    rows: Rows
    spec: ProbeSpec
    seed: int


def no_penalty(theta: Float[Tensor, "layers heads"]) -> Float[Tensor, ""]:
    """Return 0: nothing is added to the loss."""
    return theta.new_zeros(())


def train_shares(
    training: ThetaTraining,
    *,
    shares: OfTheta = torch.sigmoid,
    penalty: OfTheta = no_penalty,
    start: Float[np.ndarray, "layers heads"] | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> list[Float[Tensor, "layers heads"]]:
    """Train θ, which says how much of its attention each head keeps, by the loss of a native head.

    Args:
        training: The native head, its texts, and how it is trained.
        shares: From θ to the share of attention that each head keeps.
        penalty: From θ to what is added to the mean loss.
        start: The shares before the first step; None begins at θ = 0.
        progress: Called with (done, total) texts.
        on_epoch: Called after each epoch.

    Returns:
        θ after every step.
    """
    native = training.native
    spec = training.spec
    rows = training.rows
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
                mix = Mixed(training.substitute, shares(theta))
                loss, lengths = native.summed(batch, mix, native.units)
                if not loss.requires_grad:
                    raise SpecError("the score has no gradient, which training needs: use 'effect'")
                answers_of_batch = int(lengths.sum())
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
        progress(done, total)

    rows_per_window = max(len(rows), spec.batch_size)
    train(
        [Learner([{"params": [theta]}], [training.seed])],
        single_seed_window(rows, losses, rows_per_window // spec.batch_size),
        spec,
        rows=len(rows),
        rows_per_window=rows_per_window,
        progress=after_step,
        on_epoch=on_epoch,
    )
    return by_step


def train_lambda(
    training: ThetaTraining,
    *,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> Float[np.ndarray, "epochs layers heads"]:
    """Train λ of every head, with B = λA + (1 - λ)C (paper, Section 3.2), to keep a native head's
    loss low. Return λ after every epoch.
    """
    by_step = train_shares(training, progress=progress, on_epoch=on_epoch)
    steps = math.ceil(len(training.rows) / training.spec.batch_size)
    by_epoch = torch.stack(by_step[steps - 1 :: steps])
    return by_epoch.sigmoid().double().numpy()


def train_gates(
    training: ThetaTraining, *, progress: Progress = ignore_progress
) -> Float[np.ndarray, "layers heads"]:
    """Train L0 gates on a native head, as ``papa.ranking.learned.gates`` on a probe: how likely
    each head's gate is to stay open, where every open gate costs something.
    """
    generator = torch.Generator().manual_seed(seed_of(training.seed, 2))

    def drawn(location: Float[Tensor, "layers heads"]) -> Float[Tensor, "layers heads"]:
        uniform = torch.rand(location.shape, generator=generator).clamp(1e-6, 1 - 1e-6)
        return drawn_gates(location, uniform)

    by_step = train_shares(
        training,
        shares=drawn,
        penalty=lambda location: GATE_COST * open_probability(location).sum(),
        progress=progress,
    )
    return open_probability(by_step[-1]).double().numpy()


@dataclass(frozen=True)
class CausalGates:
    """Causal gates of one seed (Nam et al., 2025): G⁺, pulled to 1, G⁻, pulled to 0, and whether
    they no longer moved at the end of both runs.
    """

    pulled_open: Float[np.ndarray, "layers heads"]
    pulled_closed: Float[np.ndarray, "layers heads"]
    settled: Bool[np.ndarray, "layers heads"]


def train_causal_gates(
    training: ThetaTraining, *, progress: Progress = ignore_progress
) -> CausalGates:
    """Fit gates g of gA·V + (1-g)·substitute to the loss alone; from there once with a pull to 1
    (G⁺) and once to 0 (G⁻). Raises a SpecError unless the loss is a language model's.
    """
    if training.native.loss is not WORDS:
        raise SpecError(
            "causal_gates needs the loss of a language model: give a causal model, or labels "
            "of masked words"
        )
    runs = iter(_thirds(progress))
    by_step = train_shares(training, progress=next(runs))
    # A gate that lies beyond the reach of the pull would come back too late.
    farthest = 1 / (1 + math.exp(-CAUSAL_GATE_BOUND))
    start = by_step[-1].sigmoid().double().numpy().clip(1 - farthest, farthest)
    settled = np.ones(training.native.size, dtype=bool)
    means: list[Float[np.ndarray, "layers heads"]] = []
    for pull in (CAUSAL_GATE_PULL, -CAUSAL_GATE_PULL):

        def penalty(theta: Tensor, pull: float = pull) -> Tensor:
            return -pull * theta.clamp(-CAUSAL_GATE_BOUND, CAUSAL_GATE_BOUND).sum()

        by_step = train_shares(training, penalty=penalty, start=start, progress=next(runs))
        logits = torch.stack(by_step).double().numpy()
        means.append((1 / (1 + np.exp(-logits[-_WINDOW:]))).mean(axis=0))
        settled &= has_settled(logits, training.spec.learning_rate)
    pulled_open, pulled_closed = means
    return CausalGates(pulled_open, pulled_closed, settled)


def _thirds(progress: Progress) -> Iterator[Progress]:
    """Report the progress of three runs as that of one."""
    for run in range(3):

        def advance(done: int, total: int, before: int = run) -> None:
            progress(before * total + done, 3 * total)

        yield advance


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
