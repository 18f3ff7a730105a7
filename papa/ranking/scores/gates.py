"""L0 gates: how likely a head's gate is to stay open, where every open gate costs something (Voita
et al., 2019, Section 5.1; Louizos et al., 2018, Section 2.2).

A head puts out g·A·V + (1-g)·C·V, where g is drawn anew for each part of a minibatch: a closed gate
is a constant head. As with λ, the gates and a probe are trained together and the encoder is frozen.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.replacement import mixed_by
from papa.probes.evaluate import build_probe
from papa.probes.joint import JointGradients, PartGradient
from papa.probes.minibatches import Part, seed_of
from papa.ranking.scores.asked import Asked, Scored, train_for_epochs

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


class GateGradients(JointGradients):
    """Gradients of a part's loss, and of its share of what open gates cost, for log α and the
    probe.
    """

    def __init__(self, asked: Asked) -> None:
        encoder = asked.encoder
        self.location = nn.Parameter(
            torch.zeros(encoder.layers, encoder.heads, device=encoder.device)
        )
        self._uniform, constants = torch.zeros(0), asked.constants.to(encoder.device)

        def gated() -> AbstractContextManager[None]:
            return mixed_by(encoder, constants, drawn_gates(self.location, self._uniform))

        probe = build_probe(encoder, asked.corpus, asked.task, [asked.seed]).to(encoder.device)
        dropout = asked.task.probe.encoder_dropout
        super().__init__(encoder, self.location, probe, asked.corpus, dropout=dropout, block=gated)

    def gradient(self, part: Part) -> PartGradient:
        # Not a seed that dropout draws from.
        drawn = torch.Generator().manual_seed(seed_of(part.dropout_seed, 2))
        uniform = torch.rand(self.location.shape, generator=drawn)
        self._uniform = uniform.clamp(1e-6, 1 - 1e-6).to(self.location)
        loss, (of_location, *others) = super().gradient(part)
        cost = part.share * COST * open_probability(self.location).sum()
        (of_cost,) = torch.autograd.grad(cost, self.location)
        return loss + cost.item(), [of_location + of_cost, *others]


def gates(asked: Asked) -> Scored:
    """The probability that each head's gate is open, after as many epochs as λ is trained for."""
    gradients = GateGradients(asked)
    epochs = train_for_epochs(
        asked, gradients.of_parts, gradients.trained, asked.task.probe.learning_rate
    )
    values = open_probability(gradients.location.detach()).cpu().numpy()
    return Scored(values, None, 2 * epochs)
