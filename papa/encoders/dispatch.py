"""The one place through which every layer's attention passes, so that it can be watched, replaced
or mixed.

A layer hands over its queries, keys and values; the rule of that layer, if any, decides what its
heads put out. Rules are set by context managers, which put back what they found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from papa.corpora.batches import MicroBatch
from papa.errors import EncoderError


@dataclass(frozen=True)
class InputDependentAttention:
    """The input-dependent attention of some heads of one layer, not yet computed.

    Attributes:
        mask: True where a query may look at a key: where the key is a real token, in a local layer
            also near enough. None where all may.
        bias: added to the scaled scores before the softmax (relative positions).
        dropout: probability with which entries are dropped (the authors' code probes with it; 0
            otherwise).
    """

    query: Float[Tensor, "batch dependent m width"]
    key: Float[Tensor, "batch dependent m width"]
    mask: Bool[Tensor, "#batch 1 #m m"] | None
    scaling: float
    bias: Float[Tensor, "#batch dependent m m"] | None = None
    dropout: float = 0.0

    def probabilities(self) -> Float[Tensor, "batch dependent m m"]:
        """A: the attention matrices themselves."""
        # Queries are scaled, not scores: m · width numbers in place of m · m.
        scores = torch.matmul(
            at_least_single(self.query) * self.scaling, at_least_single(self.key).transpose(-1, -2)
        )
        if self.bias is not None:
            scores = scores + self.bias
        if self.mask is not None:
            scores = scores.masked_fill_(~self.mask, -math.inf)
        # By autocast the scores are in half precision again.
        probabilities = at_least_single(scores).softmax(dim=-1)
        return F.dropout(probabilities, self.dropout, training=self.dropout > 0)

    def product(
        self, value: Float[Tensor, "batch dependent m width"]
    ) -> Float[Tensor, "batch dependent m width"]:
        """Return A·V without holding A (fused kernel), in the precision of V.

        With a bias in float32 at least, and where a CPU takes gradients: its fused backward pass is
        fourteen times as slow in bfloat16 as the forward pass.
        """
        mask: Tensor | None = self.mask
        if self.bias is not None or (value.requires_grad and value.device.type == "cpu"):
            value = at_least_single(value)
        if self.bias is not None:
            bias = self.bias.to(value.dtype)
            mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
        query, key = self.query.to(value.dtype), self.key.to(value.dtype)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout, scale=self.scaling
        )


def at_least_single(states: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half precision as float32; float32 and float64 as they are."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


@runtime_checkable
class Rule(Protocol):
    """What the heads of one layer put out instead of A·V for all of them. It asks for queries and
    keys of its ``dependent_heads``, ascending; None asks for all.
    """

    dependent_heads: Int[Tensor, " dependent"] | None

    def __call__(
        self,
        own: InputDependentAttention,
        value: Float[Tensor, "batch heads m width"],
        batch: MicroBatch,
    ) -> Float[Tensor, "batch heads m width"]: ...


class StopForward(Exception):
    """Raised by a rule that needs no more of the forward pass; ends it in ``Encoder.observe``."""


See = Callable[[int, InputDependentAttention, Tensor, MicroBatch], Tensor]
"""What is shown a layer's number, attention, values and batch, and gives what its heads put out."""


@dataclass(frozen=True)
class Watching:
    """The rule of one layer that is seen; what the last one puts out is seen by nobody."""

    see: See
    layer: int
    last: bool
    dependent_heads: None = None

    def __call__(self, own: InputDependentAttention, value: Tensor, batch: MicroBatch) -> Tensor:
        output = self.see(self.layer, own, value, batch)
        if self.last:
            raise StopForward
        return output


@dataclass
class Dispatch:
    """The rules in force and the current batch, shared by all layers of one encoder."""

    rules: Mapping[int, Rule] = field(default_factory=dict)
    batch: MicroBatch | None = None
    mask: Bool[Tensor, "batch 1 1 m"] | None = None
    layer: int = 0

    def begin(self, batch: MicroBatch) -> None:
        """Start a forward pass over ``batch``, which lies on the encoder's device."""
        self.batch = batch
        # Without a mask the fused kernels are faster.
        self.mask = None if batch.dense else batch.attention_mask[:, None, None, :]
        self.layer = 0

    @property
    def current_batch(self) -> MicroBatch:
        """The micro-batch of the forward pass in progress."""
        assert self.batch is not None, "attention was called outside Encoder.token_states"
        return self.batch

    def slot_distances(self) -> Int[Tensor, "m m"]:
        """By how many slots column i comes after column j, in the current batch."""
        columns = self.current_batch.columns
        return columns[:, None] - columns

    def dependent_heads(self) -> Int[Tensor, " dependent"] | None:
        """The heads of the current layer whose queries and keys are needed; None for all."""
        rule = self.rules.get(self.layer)
        return None if rule is None else rule.dependent_heads

    def any_dependent_heads(self) -> bool:
        """Whether any head of the current layer needs its queries and keys."""
        own = self.dependent_heads()
        return own is None or own.numel() > 0

    def unpack_projected(
        self,
        query: Float[Tensor, "1 projected tokens width"],
        key: Float[Tensor, "1 projected tokens width"],
    ) -> tuple[Float[Tensor, "batch dependent m width"], Float[Tensor, "batch dependent m width"]]:
        """Queries and keys of the dependent heads, input by input; of no head where the
        layer has none.
        """
        if self.any_dependent_heads():
            batch = self.current_batch
            return batch.unpack_heads(query), batch.unpack_heads(key)
        inputs, columns = self.current_batch.shape
        # Stand-ins without a head, as the rule is handed queries and keys all the same.
        none = query.new_empty(inputs, 0, columns, query.shape[-1])
        return none, none

    def attend(
        self, own: InputDependentAttention, value: Float[Tensor, "1 heads tokens width"]
    ) -> Float[Tensor, "1 tokens heads width"]:
        """What the heads of the current layer put out for real tokens, all inputs' side by side;
        moves on to the next layer.
        """
        rule, batch = self.rules.get(self.layer), self.current_batch
        # Calls are counted, as layers may share one module and know no number of their own.
        self.layer += 1
        unpacked = batch.unpack_heads(value)
        output = own.product(unpacked) if rule is None else rule(own, unpacked, batch)
        return batch.pack_heads(output).transpose(1, 2)

    @contextmanager
    def ruled(self, rules: Mapping[int, Rule]) -> Iterator[None]:
        """Put ``rules`` in force, and back what was before."""
        before = self.rules
        self.rules = rules
        try:
            yield
        finally:
            self.rules = before


_WITHOUT_EFFECT = frozenset(
    {
        # The mask holds these.
        "sliding_window",
        "is_causal",
        "position_ids",
        "cache_position",
        "token_type_ids",
        "mm_token_type_ids",
        # These say what to return, or how to compute the same.
        "deterministic",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        "use_cache",
        "num_items_in_batch",
    }
)
"""Arguments of attention functions that do not change what attention is."""


def refuse_unknown(module: nn.Module, others: Mapping[str, object]) -> None:
    """Refuse an argument that would be lost, such as the sinks of gpt-oss."""
    for name, value in others.items():
        if value is not None and name not in _WITHOUT_EFFECT:
            raise EncoderError(
                f"{type(module).__name__} gives its attention '{name}', which would be lost: its "
                "heads cannot be replaced"
            )


def route_interface(module: nn.Module, dispatch: Dispatch) -> None:
    """Make a module behind transformers' attention interface known to its dispatch."""
    # The interface hands its function the module and nothing else of ours.
    module.papa_dispatch = dispatch  # type: ignore[assignment]


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: object,
) -> tuple[Tensor, None]:
    """PAPA's entry in transformers' attention interface; the mask comes from the micro-batch."""
    refuse_unknown(module, others)
    dispatch: Dispatch = module.papa_dispatch  # type: ignore[assignment]
    query, key = dispatch.unpack_projected(query, key)
    own = InputDependentAttention(
        query, key, dispatch.mask, scaling or query.shape[-1] ** -0.5, dropout=dropout
    )
    return dispatch.attend(own, value), None


def _no_mask(*_: object, **__: object) -> None:
    """PAPA's entry in transformers' mask interface: no mask of batch × S × S is built."""


AttentionInterface.register("papa", _attention)
AttentionMaskInterface.register("papa", _no_mask)


def split_heads(
    states: Float[Tensor, "1 n heads_width"], head_width: int
) -> Float[Tensor, "1 heads n width"]:
    """One slice per head."""
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)
