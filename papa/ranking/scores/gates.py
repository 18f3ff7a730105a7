"""L0 gates: how likely a head's gate is to stay open, where every open gate costs something (Voita
et al., 2019, Section 5.1; Louizos et al., 2018, Section 2.2).

A head puts out g·A·V + (1-g)·C·V, where g is drawn anew for each part of a minibatch: a closed gate
is a constant head. As with λ, the gates and a probe are trained together and the encoder is frozen.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.replacement import mixed_by
from papa.probes.evaluate import build_probe
from papa.probes.minibatches import Part, seed_of
from papa.probes.training import JointLearner
from papa.ranking.scores.asked import Asked, Scored

TEMPERATURE, LOW, HIGH = 0.33, -0.1, 1.1
"""β, γ and ζ of the hard concrete distribution: a draw is stretched from (0, 1) to (γ, ζ), and what
lies beyond 0 and 1 is cut off."""
COST = 0.01
"""Of an open gate, in units of the loss."""


def drawn_gates(
    location: Float[Tensor, "layers heads"], uniform: Float[Tensor, "layers heads"]
) -> Float[Tensor, "layers heads"]:
    """Gates 0..1 from log α and numbers drawn from (0, 1)."""
    stretched = ((uniform.logit() + location) / TEMPERATURE).sigmoid() * (HIGH - LOW) + LOW
    return stretched.clamp(0, 1)


def open_probability(location: Float[Tensor, "layers heads"]) -> Float[Tensor, "layers heads"]:
    """The probability that a gate is not 0."""
    return (location - TEMPERATURE * math.log(-LOW / HIGH)).sigmoid()


class GateLearner(JointLearner):
    """Log α of every gate, and the probe."""

    def __init__(self, asked: Asked) -> None:
        encoder, task = asked.encoder, asked.task
        constants = asked.constants.to(encoder.device)
        location = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
        super().__init__(
            encoder,
            location,
            build_probe(encoder, asked.corpus, task, [asked.seed]).to(encoder.device),
            asked.corpus,
            dropout=task.probe.encoder_dropout,
            block=lambda: mixed_by(encoder, constants, drawn_gates(location, self._uniform)),
        )

    def loss(self, part: Part) -> Float[Tensor, ""]:
        """The part's share of the loss, and of what open gates cost."""
        # Not a seed that dropout draws from.
        drawn = torch.Generator().manual_seed(seed_of(part.dropout_seed, 2))
        uniform = torch.rand(self.parameter.shape, generator=drawn)
        self._uniform = uniform.clamp(1e-6, 1 - 1e-6).to(self.parameter)
        cost = part.share * COST * open_probability(self.parameter).sum()
        return super().loss(part) + cost


def gates(asked: Asked) -> Scored:
    """The probability that each head's gate is open, after as many epochs as λ is trained for."""
    learner = GateLearner(asked)
    epochs = asked.train(learner)
    return Scored(open_probability(learner.parameter.detach()).cpu().numpy(), None, 2 * epochs)
