"""Heads that mix by the attention matrix of the same head of the layer before (after Reuse
Transformer, Bhojanapalli et al., 2021): no constant, but no queries and keys of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import InputDependentAttention, at_least_single
from papa.encoders.encoder import Encoder
from papa.spec.orders import Head


@dataclass
class _Reusing:
    """The rule of one layer whose ``reusing`` heads mix by A of the layer ``before``, which every
    layer writes for the next.
    """

    reusing: Sequence[int]
    dependent_heads: Int[Tensor, " dependent"]
    before: dict[int, InputDependentAttention]

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        output = torch.empty_like(at_least_single(value))
        for place, head in enumerate(self.dependent_heads.tolist()):
            self.before[head] = _one(own, slice(place, place + 1))
        if self.dependent_heads.numel():
            dependent = own.product(value[:, self.dependent_heads])
            output[:, self.dependent_heads] = dependent.to(output.dtype)
        for head in self.reusing:
            found = self.before[head].product(value[:, head : head + 1])
            output[:, head : head + 1] = found.to(output.dtype)
        return output


def _one(own: InputDependentAttention, place: slice) -> InputDependentAttention:
    bias = None if own.bias is None else own.bias[:, place]
    return replace(own, query=own.query[:, place], key=own.key[:, place], bias=bias)


@contextmanager
def reused(encoder: Encoder, heads: Sequence[Head]) -> Iterator[None]:
    """Inside the block these heads mix by A of the same head of the layer before, or by what that
    one reuses itself. Heads of the first layer keep their own.
    """
    before: dict[int, InputDependentAttention] = {}
    rules = {}
    for layer in range(encoder.layers):
        own = sorted(head for at, head in heads if at == layer and layer)
        kept = [head for head in range(encoder.heads) if head not in own]
        dependent = torch.tensor(kept, dtype=torch.long, device=encoder.device)
        rules[layer] = _Reusing(own, dependent, before)
    with encoder.ruled(rules):
        yield
