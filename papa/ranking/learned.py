"""Training λ (paper, Section 3.2), and what else is trained with constants to score heads."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import mixed_by
from papa.models.encoder import Encoder
from papa.probes.chunks import Chunk, ChunkLoss, LossOn, probe_loss, train_in_chunks
from papa.probes.evaluate import build_probe
from papa.probes.training import Groups, seed_of
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.ranking.head_scores import HeadScores, rows_of_seed
from papa.ranking.loss_scores import ScoringRequest
from papa.spec import TaskSpec
from papa.text.batches import micro_batch
from papa.text.corpus import TokenisedCorpus

GATE_TEMPERATURE = 0.33
"""β of the hard concrete distribution."""
GATE_LOW = -0.1
GATE_HIGH = 1.1
"""ζ, as GATE_LOW is γ: a draw is stretched from (0, 1) to (γ, ζ), and clamped to 0 and 1."""
GATE_COST = 0.01
"""Loss per open gate."""
SELF_LAMBDA_RATE = 0.02
"""The default learning rate of self-λ."""
SELF_LAMBDA_PENALTY = 0.05
"""Loss per unit of the mean self-λ (DuoAttention's)."""


@dataclass(frozen=True)
class Trainable:
    """What a method trains.

    Attributes:
        theta: A number for every head, 0 at the start.
        groups: The parameters, those of a probe after θ.
        loss_on: Returns the loss on an encoder.
    """

    theta: nn.Parameter
    groups: Groups
    loss_on: LossOn


def train_lambda(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> Float[Tensor, "layers heads"]:
    """Train λ of every head, and return it: θ, 0 at the start, is trained with a probe on a frozen
    encoder, as the task's ``probe`` says, on ``rows`` of the seed's or all.
    """
    split = corpus.split("train")
    mix = build_mix(encoder, constants, corpus, task, seed)
    train_in_chunks(
        mix.groups,
        mix.loss_on,
        encoder,
        split,
        task.probe,
        seed,
        rows_of_seed(len(split), rows, seed),
        progress=progress,
        on_epoch=on_epoch,
    )
    return mix.theta.detach().sigmoid().cpu()


def build_mix(
    encoder: Encoder,
    constants: ConstantMatrices,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    shares: Callable[[Tensor, Chunk], Tensor] = lambda theta, chunk: theta.sigmoid(),
) -> Trainable:
    """Return θ and a new probe, trained on an encoder whose heads output share·A·V +
    (1 - share)·C·V; ``shares`` maps θ to the share of A.
    """
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
    on_device = constants.to(encoder.device)
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)

    def loss_on(running: Encoder) -> ChunkLoss:
        return probe_loss(
            running,
            probe,
            corpus.split("train"),
            task.probe.encoder_dropout,
            block=lambda chunk: mixed_by(running, on_device, shares(theta, chunk)),
        )

    groups: Groups = [{"params": [theta]}, {"params": [*probe.parameters()]}]
    return Trainable(theta, groups, loss_on)


def drawn_gates(
    location: Float[Tensor, "layers heads"], generator: torch.Generator
) -> Float[Tensor, "layers heads"]:
    """Draw gates in [0, 1] from their locations log α, by a generator on the CPU."""
    # Not 0 and 1, whose logits are infinite.
    uniform = torch.rand(location.shape, generator=generator).clamp(1e-6, 1 - 1e-6)
    uniform = uniform.to(location.device, location.dtype)
    drawn = ((uniform.logit() + location) / GATE_TEMPERATURE).sigmoid()
    return (drawn * (GATE_HIGH - GATE_LOW) + GATE_LOW).clamp(0, 1)


def open_probability(location: Float[Tensor, "layers heads"]) -> Float[Tensor, "layers heads"]:
    """Return the probability that a gate is not 0."""
    return (location - GATE_TEMPERATURE * math.log(-GATE_LOW / GATE_HIGH)).sigmoid()


def build_gates(request: ScoringRequest) -> Trainable:
    """Return log α of every gate as θ, and the task's probe."""

    def drawn(location: Tensor, chunk: Chunk) -> Tensor:
        # Not a seed that dropout draws from.
        seed = seed_of(chunk.dropout_seed, 2)
        return drawn_gates(location, torch.Generator().manual_seed(seed))

    mix = build_mix(
        request.encoder, request.constants, request.corpus, request.task, request.seed, drawn
    )

    def loss_on(running: Encoder) -> ChunkLoss:
        probe_loss = mix.loss_on(running)

        def loss(chunk: Chunk) -> Tensor:
            return probe_loss(chunk) + chunk.share * GATE_COST * open_probability(mix.theta).sum()

        return loss

    return replace(mix, loss_on=loss_on)


def gates(request: ScoringRequest) -> HeadScores:
    """Return how likely each head's gate is to stay open, where every open gate costs something
    (Voita et al., 2019, Section 5.1; Louizos et al., 2018, Section 2.2), after as many epochs as λ:
    a head outputs g·A·V + (1-g)·C·V, with g drawn anew for each chunk of a minibatch.
    """
    return _trained(request, build_gates(request), open_probability, passes=2)


def build_self_lambda(request: ScoringRequest) -> Trainable:
    """Return θ with the loss: the mean over tokens of ‖h' - h‖² over ‖h‖², and the penalty, with h
    a token's last hidden state and h' that of the encoder whose heads output λ·A·V + (1-λ)·C·V.
    The mean is the same in whatever chunks a device takes a minibatch.
    """
    encoder = request.encoder
    split = request.corpus.split("train")
    constants = request.constants.to(encoder.device)
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))

    def loss_on(running: Encoder) -> ChunkLoss:
        def loss(chunk: Chunk) -> Float[Tensor, ""]:
            batch = micro_batch(split, chunk.rows)
            with torch.no_grad():
                original = running.token_states(batch)[-1]
            with mixed_by(running, constants, theta.sigmoid()):
                error = running.token_states(batch)[-1] - original
            lost = (error.square().sum(-1) / original.square().sum(-1)).mean()
            return chunk.token_share * (lost + SELF_LAMBDA_PENALTY * theta.sigmoid().mean())

        return loss

    return Trainable(theta, [{"params": [theta]}], loss_on)


def self_lambda(request: ScoringRequest) -> HeadScores:
    """Train λ so that the encoder keeps its own last hidden states, without labels or a probe,
    after DuoAttention (Xiao et al., 2025, Section 2.2), with C as the substitute.
    """
    return _trained(
        request, build_self_lambda(request), torch.sigmoid, passes=3, rate=SELF_LAMBDA_RATE
    )


def _trained(
    request: ScoringRequest,
    trainable: Trainable,
    score: Callable[[Tensor], Tensor],
    passes: int,
    rate: float | None = None,
) -> HeadScores:
    spec = request.ranking.training(request.task.probe, rate)
    train_in_chunks(
        trainable.groups,
        trainable.loss_on,
        request.encoder,
        request.corpus.split("train"),
        spec,
        request.seed,
        request.rows,
        progress=request.progress,
    )
    values = score(trainable.theta.detach()).cpu().numpy()
    return HeadScores(values[None], evaluations=passes * spec.epochs)
