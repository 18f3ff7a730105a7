"""What heads are worth together: v(S), while all heads outside of S are constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Int

from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batches
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.probes.packed import live_features
from papa.probes.probes import Probe
from papa.ranking.own import OwnLoss, in_batches
from papa.spec.orders import Head

Value = Callable[[Set[Head]], float]
"""v: from the heads that stay input-dependent."""
Loss = tuple[float, int]
"""The sum of losses, and how many there are."""


class Losses(Protocol):
    """Losses on some rows while all heads outside of a set are constant."""

    heads: list[Head]

    def batches(self, own: Set[Head]) -> Iterator[Loss]:
        """Those of each batch, heads in ``own`` input-dependent."""


class LossValue:
    """v(S) is the negative mean loss on some rows, the heads of S input-dependent."""

    def __init__(self, losses: Losses) -> None:
        self.heads, self.evaluations, self._losses = losses.heads, 0, losses
        self._last: tuple[Set[Head], float] | None = None

    def __call__(self, own: Set[Head]) -> float:
        """v of the heads that stay input-dependent."""
        if self._last is None or own != self._last[0]:
            sums, terms = zip(*self._losses.batches(own), strict=True)
            self.evaluations, self._last = self.evaluations + 1, (own, -sum(sums) / sum(terms))
        return self._last[1]


class FrozenLosses:
    """The losses of a frozen probe, trained on the encoder as it is."""

    def __init__(
        self,
        encoder: Encoder,
        constants: ConstantMatrices,
        split: TokenisedSplit,
        rows: Int[np.ndarray, " rows"],
        probe: Probe,
    ) -> None:
        self.heads = [*np.ndindex(encoder.layers, encoder.heads)]
        self._encoder, self._constants, self._split, self._probe = encoder, constants, split, probe
        self._batches = [*micro_batches(split, rows, encoder.tokens_per_batch(None))]

    @torch.inference_mode()
    def batches(self, own: Set[Head]) -> Iterator[Loss]:
        """Those of each micro-batch."""
        constant = [head for head in self.heads if head not in own]
        with replaced(self._encoder, self._constants, constant):
            for batch in self._batches:
                features = live_features(self._encoder.token_states(batch), self._split, batch)
                losses = self._probe.losses(features, torch.arange(len(features))[None])
                yield float(losses.sum()) * len(features.labels), len(features.labels)


class OwnLosses:
    """The losses of what the model's own head answers on some rows of the split, with C as the
    loss's substitute. The model runs as its users call it.
    """

    def __init__(
        self, loss: OwnLoss, rows: Int[np.ndarray, " rows"], size: tuple[int, int]
    ) -> None:
        self.heads, self._loss, self._shape = [*np.ndindex(*size)], loss, size
        self._batches = [*in_batches(loss, rows)]

    @torch.inference_mode()
    def batches(self, own: Set[Head]) -> Iterator[Loss]:
        """Those of each batch of rows of like length."""
        shares = torch.zeros(self._shape)
        for head in own:
            shares[head] = 1.0
        for batch in self._batches:
            summed, lengths = self._loss(batch, shares.to(self._loss.model.device))
            yield float(summed), int(lengths.sum())
