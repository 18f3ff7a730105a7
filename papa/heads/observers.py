"""Observers: what computes a substitute from the passes of a model over a text.

Each entry of ``papa.spec.substitutes`` that needs text names a function of an ``ObservedModel``
that returns its observer.
"""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from papa.heads.substitutes import Substitute
from papa.models.layer import LayerAttention
from papa.spec.substitutes import SUBSTITUTES


@dataclass(frozen=True)
class ObservedModel:
    """The model whose passes are observed.

    Attributes:
        layers: How many layers have attention.
        heads: How many heads each of them has.
        device: Where sums are kept.
        seed: Seeds what is drawn.
        slots: Slots of every text; 1 where texts have any number of tokens.
    """

    layers: int
    heads: int
    device: torch.device | str = "cpu"
    seed: int = 0
    slots: int = 1


@runtime_checkable
class Observer(Protocol):
    """Observes every layer in some passes, and computes a substitute from them."""

    def observe(self, attention: LayerAttention, layer: int) -> Tensor:
        """Observe one layer in one pass; return what its heads output, [batch, H, queries, d/H]."""

    def substitute(self) -> Substitute:
        """Return the substitute."""


def observer_of(name: str, model: ObservedModel) -> Observer:
    """Return a new observer for a substitute whose entry names one."""
    observer: Observer = resolve_name(SUBSTITUTES[name].observer)(model)
    return observer
