"""What heads are worth together: v(S), while all heads outside of S are constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from papa.ablation.substitutes import ByPosition
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.corpora.batches import micro_batches
from papa.corpora.rows import sampled_rows
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.probes.packed import live_features
from papa.probes.probes import Probe
from papa.ranking.loss_value import Loss, Losses, LossValue
from papa.ranking.own_loss import OwnLoss, in_batches
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.frozen import frozen_probe, own_loss
from papa.spec.methods import VALUED_ROWS
from papa.spec.orders import Head


@contextmanager
def resumed(encoder: Encoder, first: int, outputs: list[Any]) -> Iterator[None]:
    """Inside the block, of one pass, layers below ``first`` give what ``outputs`` has and compute
    nothing; the others put there what they give.

    Args:
        first: the lowest layer that computes; 0 computes all.
        outputs: of every layer, from a pass over the same batch in which the layers below ``first``
            had the same heads constant; changed in place.
    """

    def forward(own: Any, *arguments: Any, **options: Any) -> Any:
        # Layers may share a module: the dispatch knows which of them it is.
        layer = encoder.dispatch.layer
        if layer >= first:
            outputs[layer] = own(*arguments, **options)
        else:
            encoder.dispatch.layer += 1
        return outputs[layer]

    with ExitStack() as after:
        for layer in dict.fromkeys(_layers(encoder)):
            own: Any = layer.forward
            after.callback(
                vars(layer).pop if "forward" not in vars(layer) else partial(setattr, layer),
                "forward",
                own,
            )
            layer.forward = partial(forward, own)
        yield


def _layers(encoder: Encoder) -> list[nn.Module]:
    """The module of each layer: what holds its attention in a list of modules, the innermost."""
    holders: dict[nn.Module, nn.Module] = {}
    for module in encoder.model.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                holders |= dict.fromkeys(layer.modules(), layer)
    return [holders[attention] for attention in encoder.family.attentions(encoder.model)]


Value = Callable[[Set[Head]], float]
"""v: from the heads that stay input-dependent."""


class FrozenLosses(Losses):
    """The losses of a frozen probe.

    A pass begins at the lowest layer in which S differs from that of the batch's pass before: the
    states below it are the same. So states are held, (L+1)·d numbers a token.

    Args:
        probe: trained on the encoder as it is.
        resume: whether passes begin above what is known.

    Attributes:
        layers: computed so far, of all batches.
    """

    def __init__(
        self,
        encoder: Encoder,
        constants: ConstantMatrices,
        split: TokenisedSplit,
        rows: Int[np.ndarray, " rows"],
        probe: Probe,
        *,
        resume: bool = True,
    ) -> None:
        self.heads, self.layers = [*np.ndindex(encoder.layers, encoder.heads)], 0
        self._encoder, self._constants, self._split = encoder, constants, split
        self._probe, self._resume = probe, resume
        self._batches = [*micro_batches(split, rows, encoder.tokens_per_batch(None))]
        self.sizes = [len(batch.input_ids) for batch in self._batches]
        self._held: dict[int, tuple[Set[Head], list[Any]]] = {}

    @torch.inference_mode()
    def loss(self, own: Set[Head], number: int) -> Loss:
        first, batch, encoder = 0, self._batches[number], self._encoder
        before, outputs = self._held.pop(number, (None, [None] * encoder.layers))
        if self._resume and before is not None:
            first = min((layer for layer, _ in before ^ own), default=encoder.layers)
        constant = [head for head in self.heads if head not in own]
        with replaced(encoder, self._constants, constant), resumed(encoder, first, outputs):
            states = encoder.token_states(batch)
        self._held[number] = own, outputs
        self.layers += encoder.layers - first
        features = live_features(states, self._split, batch)
        losses = self._probe.losses(features, torch.arange(len(features))[None])
        return float(losses.sum()) * len(features.labels), len(features.labels)


class OwnLosses(Losses):
    """The losses of what the model's own head answers on some rows of the split, with C as the
    loss's substitute. The model runs as its users call it, all layers each time.
    """

    def __init__(
        self, loss: OwnLoss, rows: Int[np.ndarray, " rows"], size: tuple[int, int]
    ) -> None:
        self.heads, self._loss, self._shape = [*np.ndindex(*size)], loss, size
        self._batches = [*in_batches(loss, rows)]
        self.sizes = [int(loss.split.lengths[batch].sum()) for batch in self._batches]

    @torch.inference_mode()
    def loss(self, own: Set[Head], number: int) -> Loss:
        shares = torch.zeros(self._shape)
        for head in own:
            shares[head] = 1.0
        summed, lengths = self._loss(self._batches[number], shares.to(self._loss.model.device))
        return float(summed), int(lengths.sum())


def losses_of(asked: Asked) -> Losses:
    """The losses on a sample of training rows: of a probe, trained first unless it is given, or of
    the model's own head.
    """
    split = asked.corpus.split("train")
    rows = sampled_rows(len(split), asked.ranking.rows or VALUED_ROWS, asked.seed)
    if asked.task.head == "own":
        loss = own_loss(asked, ByPosition(asked.constants.matrices))
        return OwnLosses(loss, rows, (asked.encoder.layers, asked.encoder.heads))
    return FrozenLosses(asked.encoder, asked.constants, split, rows, frozen_probe(asked))


def frozen_value(asked: Asked) -> LossValue:
    """v by ``losses_of``. A method asks for the same sets in the same order each time, as workers
    may share it in several calls.
    """
    return asked.value or LossValue(losses_of(asked))
