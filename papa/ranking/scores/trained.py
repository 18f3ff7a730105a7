"""What is trained with constants to score heads: L0 gates, and λ that keeps hidden states."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.replacement import mixed_by
from papa.corpora.batches import micro_batch
from papa.probes.minibatches import Part, seed_of
from papa.probes.training import JointLearner
from papa.ranking.learned import lambda_spec, mix_learner
from papa.ranking.scores.asked import Asked, Scored
from papa.spec.task import OWN_RATE

TEMPERATURE, LOW, HIGH = 0.33, -0.1, 1.1
"""β, γ and ζ of the hard concrete distribution: a draw is stretched from (0, 1) to (γ, ζ), and what
lies beyond 0 and 1 is cut off."""
COST = 0.01
"""Of an open gate, in units of the loss."""
PENALTY = 0.05
"""Of the mean self-λ, in units of the loss (DuoAttention's)."""


def drawn_gates(
    location: Float[Tensor, "layers heads"], uniform: Float[Tensor, "layers heads"]
) -> Float[Tensor, "layers heads"]:
    """Gates 0..1 from log α and numbers drawn from (0, 1)."""
    stretched = ((uniform.logit() + location) / TEMPERATURE).sigmoid() * (HIGH - LOW) + LOW
    return stretched.clamp(0, 1)


def open_probability(location: Float[Tensor, "layers heads"]) -> Float[Tensor, "layers heads"]:
    """The probability that a gate is not 0."""
    return (location - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()


def gate_learner(asked: Asked) -> JointLearner:
    """What trains log α of every gate, 0 at the start, and the task's probe."""

    def drawn(location: Tensor, part: Part) -> Tensor:
        # Not a seed that dropout draws from.
        generator = torch.Generator().manual_seed(seed_of(part.dropout_seed, 2))
        uniform = torch.rand(location.shape, generator=generator)
        return drawn_gates(location, uniform.clamp(1e-6, 1 - 1e-6).to(location))

    learner = mix_learner(
        asked.encoder, asked.constants, asked.corpus, asked.task, asked.seed, drawn
    )
    of_probe = learner.loss

    def loss(part: Part) -> Tensor:
        cost = part.share * COST * open_probability(learner.parameter).sum()
        return of_probe(part) + cost

    learner.loss = loss
    return learner


def gates(asked: Asked) -> Scored:
    """How likely each head's gate is to stay open, where every open gate costs something (Voita et
    al., 2019, Section 5.1; Louizos et al., 2018, Section 2.2), after as many epochs as λ.

    A head puts out g·A·V + (1-g)·C·V, where g is drawn anew for each part of a minibatch: a closed
    gate is a constant head. As with λ, the gates and a probe are trained together and the encoder
    is frozen.
    """
    learner = gate_learner(asked)
    spec = lambda_spec(asked.task, asked.ranking)
    learner.train(spec, asked.rows, progress=asked.progress)
    values = open_probability(learner.parameter.detach()).cpu().numpy()
    return Scored(values, None, 2 * spec.epochs)


def self_learner(asked: Asked) -> JointLearner:
    """What trains θ, 0 at the start, by the mean over tokens of ‖h' - h‖² over ‖h‖², and the
    penalty, with h a token's last hidden state and h' that of the encoder whose heads put out
    λ·A·V + (1-λ)·C·V. The mean is the same in whatever parts a device takes a minibatch.
    """
    encoder, split = asked.encoder, asked.corpus.split("train")
    constants = asked.constants.to(encoder.device)
    theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))

    def loss(part: Part) -> Float[Tensor, ""]:
        batch = micro_batch(split, part.rows)
        with torch.no_grad():
            own = encoder.token_states(batch)[-1]
        with mixed_by(encoder, constants, theta.sigmoid()):
            error = encoder.token_states(batch)[-1] - own
        lost = (error.square().sum(-1) / own.square().sum(-1)).mean()
        return part.token_share * (lost + PENALTY * theta.sigmoid().mean())

    return JointLearner([{"params": [theta]}], loss, encoder, split, asked.seed)


def self_lambda(asked: Asked) -> Scored:
    """λ trained so that the encoder keeps its own last hidden states; no labels, no probe.

    After DuoAttention (Xiao et al., 2025, Section 2.2), with C as the substitute. θ is trained
    alone, for as many epochs as λ with a probe, at ``OWN_RATE`` where ``ranking.learning_rate``
    names none.
    """
    learner = self_learner(asked)
    spec = lambda_spec(asked.task, asked.ranking, OWN_RATE)
    learner.train(spec, asked.rows, progress=asked.progress)
    return Scored(learner.parameter.detach().sigmoid().cpu().numpy(), None, 3 * spec.epochs)
