"""What heads are worth together: v(S), while all heads outside of S are constant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

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


class Losses(ABC):
    """Losses on some rows, a batch at a time; ``sizes`` says how much work each batch is."""

    heads: list[Head]
    sizes: list[int]

    @abstractmethod
    def loss(self, own: Set[Head], number: int) -> Loss:
        """Those of batch ``number`` while all heads outside of ``own`` are constant."""


class Paused(Exception):
    """A method asks for more values than a call computes; ``values`` are those it was given."""

    def __init__(self, values: tuple[float, ...]) -> None:
        self.values = values


class LossValue:
    """v(S) is the negative mean loss on some rows, the heads of S input-dependent.

    Args:
        of_batches: of S and the batches' numbers and sizes, the losses of each batch, by any
            worker; None computes them here.
        values: what the same method was given before, in its order: it is given that again.
        most: values to compute before ``Paused``.
    """

    def __init__(
        self,
        losses: Losses,
        of_batches: Callable[[Set[Head], Sequence[int], Sequence[int]], list[Loss]] | None = None,
        values: Sequence[float] = (),
        most: int | None = None,
    ) -> None:
        self.heads, self._sizes, self.evaluations = losses.heads, losses.sizes, 0
        self._of_batches = of_batches or (
            lambda own, numbers, _: [losses.loss(own, number) for number in numbers]
        )
        self._values = [*values]
        self._end = None if most is None else len(values) + most
        self._last: Set[Head] | None = None

    def __call__(self, own: Set[Head]) -> float:
        """v of the heads that stay input-dependent."""
        if own != self._last:
            if self.evaluations == len(self._values):
                self._values.append(self._computed(own))
            self.evaluations, self._last = self.evaluations + 1, own
        return self._values[self.evaluations - 1]

    def _computed(self, own: Set[Head]) -> float:
        if len(self._values) == self._end:
            raise Paused(tuple(self._values))
        total, terms = 0.0, 0
        # In the batches' order, whoever computed them: floating-point sums depend on it.
        for loss, count in self._of_batches(own, range(len(self._sizes)), self._sizes):
            total, terms = total + loss, terms + count
        return -total / terms


@contextmanager
def resumed(encoder: Encoder, first: int, outputs: list[Any]) -> Iterator[None]:
    """Inside the block, of one pass, layers below ``first`` give what ``outputs`` has and compute
    nothing; the others put there what they give. The outputs are of a pass over the same batch in
    which the layers below had the same heads constant.
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


class FrozenLosses(Losses):
    """The losses of a frozen probe, trained on the encoder as it is; ``layers`` counts those that
    were computed so far, of all batches.

    A pass begins at the lowest layer in which S differs from that of the batch's pass before: the
    states below it are the same. So states are held, (L+1)·d numbers a token.
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
