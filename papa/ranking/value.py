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


class FrozenValue:
    """v(S) is the negative mean loss of a frozen probe on some rows.

    A pass begins at the lowest layer in which S differs from that of the call before: the states
    below it are the same. So the states of the rows are held, (L+1)·d numbers a token.

    Args:
        probe: trained on the encoder as it is.
        resume: whether passes begin above what is known.

    Attributes:
        evaluations: calls so far that computed anything.
        layers: layers computed so far, a pass over all rows as one.
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
        self.heads = [
            (layer, head) for layer in range(encoder.layers) for head in range(encoder.heads)
        ]
        self.evaluations = self.layers = 0
        self._encoder, self._constants, self._split = encoder, constants, split
        self._probe, self._resume = probe, resume
        self._batches = [*micro_batches(split, rows, encoder.tokens_per_batch(None))]
        self._outputs: list[list[Any]] = [[None] * encoder.layers for _ in self._batches]
        self._last: tuple[Set[Head], float] | None = None

    @torch.inference_mode()
    def __call__(self, own: Set[Head]) -> float:
        """v of the heads that stay input-dependent."""
        first = 0
        if self._resume and self._last is not None:
            before, value = self._last
            if before == own:
                return value
            first = min(layer for layer, _ in before ^ own)
        self._last = None
        constant = [head for head in self.heads if head not in own]
        total, terms = 0.0, 0
        with replaced(self._encoder, self._constants, constant):
            for batch, outputs in zip(self._batches, self._outputs, strict=True):
                with resumed(self._encoder, first, outputs):
                    states = self._encoder.token_states(batch)
                features = live_features(states, self._split, batch)
                losses = self._probe.losses(features, torch.arange(len(features))[None])
                total += float(losses.sum()) * len(features.labels)
                terms += len(features.labels)
        self.evaluations += 1
        self.layers += self._encoder.layers - first
        self._last = own, -total / terms
        return -total / terms


class OwnValue:
    """v(S) is the negative mean loss of what the model's own head answers on some rows of the
    split, with C as the loss's substitute. The model runs as its users call it, all layers each
    time.
    """

    def __init__(
        self, loss: OwnLoss, rows: Int[np.ndarray, " rows"], size: tuple[int, int]
    ) -> None:
        self.heads, self.evaluations = [*np.ndindex(*size)], 0
        self._loss, self._rows, self._size = loss, rows, size

    @torch.inference_mode()
    def __call__(self, own: Set[Head]) -> float:
        """v of the heads that stay input-dependent."""
        shares, total, answers = torch.zeros(self._size), 0.0, 0
        for head in own:
            shares[head] = 1.0
        for rows in in_batches(self._loss, self._rows):
            summed, lengths = self._loss(rows, shares.to(self._loss.model.device))
            total, answers = total + float(summed), answers + int(lengths.sum())
        self.evaluations += 1
        return -total / answers


def frozen_value(asked: Asked) -> FrozenValue | OwnValue:
    """v on a sample of training rows: by a probe that is trained first, or by the model's own
    head.
    """
    split = asked.corpus.split("train")
    rows = sampled_rows(len(split), asked.ranking.rows or VALUED_ROWS, asked.seed)
    if asked.task.head == "own":
        loss = own_loss(asked, ByPosition(asked.constants.matrices))
        return OwnValue(loss, rows, (asked.encoder.layers, asked.encoder.heads))
    return FrozenValue(asked.encoder, asked.constants, split, rows, frozen_probe(asked))
