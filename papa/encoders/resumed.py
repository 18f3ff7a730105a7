"""Forward passes that begin above the layers whose outputs are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn

from papa.encoders.encoder import Encoder


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
