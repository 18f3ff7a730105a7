"""Self-λ: λ trained so that the encoder keeps its own last hidden states; no labels, no probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from papa.attention.replacement import mixed
from papa.corpora.batches import micro_batch
from papa.probes.joint import PartGradient
from papa.probes.minibatches import Part
from papa.ranking.scores.asked import Asked, Scored, train_for_epochs
from papa.spec.task import OWN_RATE

PENALTY = 0.05
"""Of the mean λ, in units of the loss (DuoAttention's)."""


class SelfGradients:
    """Gradients for θ (0 at the start) of the mean over tokens of ‖h' - h‖² over ‖h‖², and of the
    penalty, with h a token's last hidden state and h' that of the encoder whose heads put out λ·A·V
    + (1-λ)·C·V.

    A mean over tokens is the same in whatever parts a device takes a minibatch.
    """

    def __init__(self, asked: Asked) -> None:
        self._encoder = asked.encoder
        self._constants = asked.constants.to(asked.encoder.device)
        self._split = asked.corpus.split("train")
        size, device = (asked.encoder.layers, asked.encoder.heads), asked.encoder.device
        self.theta = nn.Parameter(torch.zeros(size, device=device))

    def of_parts(self, parts: Sequence[Part]) -> list[PartGradient]:
        """Every part's share, by its tokens, of the loss and its gradient."""
        tokens = sum(part.tokens for part in parts)
        return [self._gradient(part, part.tokens / tokens) for part in parts]

    def _gradient(self, part: Part, share: float) -> PartGradient:
        batch = micro_batch(self._split, part.rows)
        with torch.no_grad():
            own = self._encoder.token_states(batch)[-1]
        with mixed(self._encoder, self._constants, self.theta):
            error = self._encoder.token_states(batch)[-1] - own
        lost = (error.square().sum(-1) / own.square().sum(-1)).mean()
        loss = share * (lost + PENALTY * self.theta.sigmoid().mean())
        return loss.item(), torch.autograd.grad(loss, [self.theta])


def self_lambda(asked: Asked) -> Scored:
    """λ of every head after as many epochs as λ is trained for with a probe.

    After DuoAttention (Xiao et al., 2025, Section 2.2), with C as the substitute. θ is trained
    alone, at ``OWN_RATE`` where ``ranking.learning_rate`` names none.
    """
    gradients = SelfGradients(asked)
    epochs = train_for_epochs(asked, gradients.of_parts, [gradients.theta], OWN_RATE)
    return Scored(gradients.theta.detach().sigmoid().cpu().numpy(), None, 3 * epochs)
