"""Self-λ: λ trained so that the encoder keeps its own last hidden states; no labels, no probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.attention.replacement import mixed
from papa.corpora.batches import micro_batch
from papa.probes.minibatches import Part
from papa.probes.training import JointLearner
from papa.ranking.scores.asked import Asked, Scored
from papa.spec.task import OWN_RATE

PENALTY = 0.05
"""Of the mean λ, in units of the loss (DuoAttention's)."""


class SelfLearner(JointLearner):
    """θ (0 at the start), by the mean over tokens of ‖h' - h‖² over ‖h‖², and the penalty, with h a
    token's last hidden state and h' that of the encoder whose heads put out λ·A·V + (1-λ)·C·V.

    A mean over tokens is the same in whatever parts a device takes a minibatch.
    """

    def __init__(self, asked: Asked) -> None:
        encoder = asked.encoder
        self._constants = asked.constants.to(encoder.device)
        theta = nn.Parameter(torch.zeros(encoder.layers, encoder.heads, device=encoder.device))
        super().__init__(encoder, theta, None, asked.corpus)

    def losses(self, parts: Sequence[Part]) -> Float[Tensor, " 1"]:
        tokens = sum(part.tokens for part in parts)
        return super().losses([part._replace(share=part.tokens / tokens) for part in parts])

    def loss(self, part: Part) -> Float[Tensor, ""]:
        batch = micro_batch(self.split, part.rows)
        with torch.no_grad():
            own = self.encoder.token_states(batch)[-1]
        with mixed(self.encoder, self._constants, self.parameter):
            error = self.encoder.token_states(batch)[-1] - own
        lost = (error.square().sum(-1) / own.square().sum(-1)).mean()
        return part.share * (lost + PENALTY * self.parameter.sigmoid().mean())


def self_lambda(asked: Asked) -> Scored:
    """λ of every head after as many epochs as λ is trained for with a probe.

    After DuoAttention (Xiao et al., 2025, Section 2.2), with C as the substitute. θ is trained
    alone, at ``OWN_RATE`` where ``ranking.learning_rate`` names none.
    """
    learner = SelfLearner(asked)
    epochs = asked.train(learner, OWN_RATE)
    return Scored(learner.parameter.detach().sigmoid().cpu().numpy(), None, 3 * epochs)
