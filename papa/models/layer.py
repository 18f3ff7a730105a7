"""One call of one layer's attention, and the rules by which heads output something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from papa.errors import EncoderError
from papa.models.slots import TokenSlots
from papa.text.batches import MicroBatch

Heads = tuple[int, ...]
States = TypeVar("States", Tensor, Tensor | None)
_ENTRIES = 2**22
"""Of A, held at once where it is written out."""


@dataclass(frozen=True)
class PassTexts:
    """The texts of a forward pass, with digests that are computed once, and only for rules that
    have to tell texts apart: that copies every input to the CPU. ``real`` says which tokens are no
    padding; None where there is none, or of frames.
    """

    inputs: Shaped[Tensor, "texts ..."]
    real: Bool[Tensor, "texts tokens"] | None

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """A digest of each text: equal texts have equal ones, whatever their padding."""
        rows = list(self.inputs.detach().cpu())
        if self.real is not None:
            rows = [row[real] for row, real in zip(rows, self.real.cpu(), strict=True)]
        numbers = (row.contiguous().view(torch.uint8).numpy() for row in rows)
        return tuple(sha256(row).digest() for row in numbers)


@dataclass(frozen=True)
class LayerAttention:
    """One call of one layer's attention, input by input, heads counted by query.

    Attributes:
        query, key: of the ``dependent`` heads; None means of every head.
        value: of every head; keys and values that heads share are repeated.
        mask: whether a query may look at a key; None where all may.
        slots: where queries and keys stand in their texts.
        bias: added to the scaled scores, which ``softcap`` bounds where it is set (Gemma 2).
        sinks: a learned score of each head beside those of its keys, so that its weights sum to
            less than one (gpt-oss); None in other models.
        call: how often the layer has attended in this pass before.
        rules: of the layer, outermost first, which say what the heads output.
        texts: the texts of the pass; None where they are not known.
        batch: the packed batch that the inputs are of; None where they were padded.
    """

    query: Float[Tensor, "batch dependent queries width"]
    key: Float[Tensor, "batch dependent keys width"]
    value: Float[Tensor, "batch heads keys value_width"]
    mask: Bool[Tensor, "#batch #heads #queries keys"] | None
    scaling: float
    slots: TokenSlots
    bias: Float[Tensor, "#batch #dependent #queries keys"] | None = None
    sinks: Float[Tensor, " heads"] | None = None
    softcap: float | None = None
    dropout: float = 0.0
    call: int = 0
    dependent: Heads | None = None
    rules: tuple[Rule, ...] = ()
    texts: PassTexts | None = None
    batch: MicroBatch | None = None

    @property
    def all_heads(self) -> Heads:
        return tuple(range(self.value.shape[1]))

    @property
    def visible(self) -> Bool[Tensor, "#batch #heads #queries keys"] | None:
        """The keys that constants may weigh: tokens, or what the mask allows; None for all."""
        return self.mask if self.batch is None else real_keys(self.batch)

    def chunks(self) -> Iterator[LayerAttention]:
        """Yield the same call, some queries at a time: A of a chunk is small, however long a text
        is.
        """
        batch, heads, queries, _ = self.query.shape
        rows = max(1, _ENTRIES // max(1, batch * heads * self.key.shape[-2]))
        if rows >= queries:
            yield self
            return
        for start in range(0, queries, rows):
            chunk = slice(start, start + rows)
            yield replace(
                self,
                query=self.query[:, :, chunk],
                mask=_of_queries(self.mask, chunk),
                bias=_of_queries(self.bias, chunk),
                slots=self.slots.of_queries(chunk),
            )

    def probabilities(self, heads: Heads) -> Float[Tensor, "batch chosen queries keys"]:
        """Return A of some heads, float32 at least; rows sum to less than one beside a learned
        sink.
        """
        query, key, bias = self._queries_and_keys(heads)
        # Queries are scaled, not scores: m · width numbers in place of m · m.
        scores = (at_least_single(query) * self.scaling) @ at_least_single(key).mT
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if bias is not None:
            scores = scores + bias
        # By autocast the scores are in half precision again.
        scores = at_least_single(scores)
        if self.mask is not None:
            # Not -inf: a row of padding, which nobody reads, would turn all that follows into NaN.
            scores.masked_fill_(~states_of_heads(self.mask, heads), torch.finfo(scores.dtype).min)
        if self.sinks is None:
            return scores.softmax(dim=-1)
        sinks = self.sinks[indices(heads, self.sinks.device)].to(scores)
        column = sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1]

    def output(self, heads: Heads) -> Float[Tensor, "batch chosen queries value_width"]:
        """Return what some heads output: A·V by the fused kernel, or as the innermost rule has
        it.
        """
        if self.rules:
            *outer, rule = self.rules
            return rule.output(replace(self, rules=tuple(outer)), heads)
        value = states_of_heads(self.value, heads)
        # The fused kernel has neither.
        if self.softcap is not None or self.sinks is not None:
            rows = (call.probabilities(heads).to(value.dtype) for call in self.chunks())
            return torch.cat([F.dropout(weights, self.dropout) @ value for weights in rows], dim=2)
        query, key, bias = self._queries_and_keys(heads)
        # On a CPU the fused backward pass is fourteen times as slow in bfloat16 as the forward one.
        if bias is not None or (value.requires_grad and value.device.type == "cpu"):
            value = at_least_single(value)
        mask = states_of_heads(self.mask, heads)
        if bias is not None:
            bias = bias.to(value.dtype)
            lowest = torch.finfo(bias.dtype).min
            mask = bias if mask is None else bias.masked_fill(~mask, lowest)
        return F.scaled_dot_product_attention(
            query.to(value.dtype),
            key.to(value.dtype),
            value,
            attn_mask=mask,
            dropout_p=self.dropout,
            scale=self.scaling,
        )

    def matrices(self) -> Float[Tensor, "batch heads queries keys"]:
        """Return the matrices by which all heads mix values: A, or what rules put in its place;
        without dropout.
        """
        rules = tuple(rule for rule in self.rules if not isinstance(rule, Observing))
        if not all(rule.mixes for rule in rules):
            raise EncoderError(
                "heads that output something else than attention times values have no matrices: "
                "call the model without output_attentions"
            )
        # What they output where each key has a value of its own: the rows of an identity matrix.
        keys = self.key.shape[-2]
        identity = torch.eye(keys, dtype=self.value.dtype, device=self.value.device)
        values = identity.expand(*self.value.shape[:2], keys, keys)
        return replace(self, value=values, dropout=0.0, rules=rules).output(self.all_heads)

    def _queries_and_keys(self, heads: Heads) -> tuple[Tensor, Tensor, Tensor | None]:
        if self.dependent is not None:
            heads = tuple(map(self.dependent.index, heads))
        return (
            states_of_heads(self.query, heads),
            states_of_heads(self.key, heads),
            states_of_heads(self.bias, heads),
        )


class Rule:
    """What heads of one layer output, in a block; ``mixes`` where it is a matrix times values."""

    @property
    def mixes(self) -> bool:
        return False

    def constant(self, outer: frozenset[int]) -> frozenset[int]:
        """Return the heads that need no queries and keys, given those that need none by the blocks
        around it, ``outer``.
        """
        return frozenset()

    def output(
        self, attention: LayerAttention, heads: Heads
    ) -> Float[Tensor, "batch chosen queries width"]:
        """Return what these heads output, where ``attention.output`` is that of the block
        around.
        """
        raise NotImplementedError


class StopForward(Exception):
    """Raised by a rule that needs no more of the forward pass; ends it in ``Encoder.observe``."""


Observe = Callable[[LayerAttention, int], Tensor]
"""Called with a layer's attention and number; returns what all its heads output."""


@dataclass(frozen=True)
class Observing(Rule):
    """The rule of one layer that is observed; what a ``last`` one outputs nobody reads."""

    observe: Observe
    layer: int
    last: bool = False

    def output(self, attention: LayerAttention, heads: Heads) -> Tensor:
        output = self.observe(attention, self.layer)
        if self.last:
            raise StopForward
        return output


def _of_queries(states: Tensor | None, queries: slice) -> Tensor | None:
    """Return a mask or a bias of some queries; one that all queries share as it is."""
    if states is None or states.shape[-2] == 1:
        return states
    return states[:, :, queries]


def at_least_single(states: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Convert half precision to float32; float32 and float64 stay as they are."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def states_of_heads(states: States, heads: Heads) -> States:
    """Select some heads of states [batch, heads, …]; the states themselves where these are all
    heads or shared by all.
    """
    if states is None or states.shape[1] == 1 or heads == tuple(range(states.shape[1])):
        return states
    return states[:, indices(heads, states.device)]


def real_keys(batch: MicroBatch) -> Bool[Tensor, "batch 1 1 m"] | None:
    """Return where inputs have a token; None where they have one everywhere, as kernels are faster
    without a mask.
    """
    return None if batch.dense else batch.attention_mask[:, None, None, :]


@lru_cache(maxsize=4096)
def indices(heads: Heads, device: torch.device) -> Int[Tensor, " chosen"]:
    """Return head numbers as a tensor on a device, moved there once."""
    with torch.inference_mode(False):
        return torch.tensor(heads, dtype=torch.long).to(device)
