"""The one place through which every layer's attention passes, so that it can be watched, replaced
or mixed: of an encoder of a study, whose tokens are packed, and of a model in the user's hands.

A layer hands over its queries, keys and values, by transformers' attention interface or by the
forward method of its family; the rule of that layer, if any, decides what its heads put out. Rules
are set by context managers, which put back what they found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from papa.corpora.batches import MicroBatch
from papa.errors import EncoderError

Heads = tuple[int, ...]
_ENTRIES = 2**22
"""Of A, held at once where it is written out."""


@dataclass(frozen=True)
class LayerAttention:
    """One call of one layer's attention, input by input, heads counted by query.

    Attributes:
        query, key: of the ``dependent`` heads; None means of every head.
        value: of every head; keys and values that heads share are repeated.
        mask: whether a query may look at a key; None where all may.
        scaling: factor on the dot products.
        query_slots, key_slots: the slot of each, from 0; one row where all inputs have the same.
        longest: how many slots matrices need, of padded texts.
        bias: added to the scaled scores: relative positions, or the model's own mask.
        softcap: scores are bounded by it (Gemma 2); None where they are not.
        dropout: probability with which entries of A are dropped.
        real: which queries are tokens; None where the mask alone says it.
        first: where among the keys the first query's own key is.
        causal: whether the model is a decoder, whose tokens see none after them.
        outer: the rule of a block around this one, whose outputs are then the heads' own.
        texts: what tells the texts of a pass apart, one each; None where that is not known.
        batch: the packed batch that the inputs are of; None where they were padded.
        ends: of a part of the queries, ``last_slots`` of all.
        window: one more than the farthest slot that is seen, which is in the mask; None where all
            are.
        position_ids: of padded queries, where the layer is told them.
    """

    query: Float[Tensor, "batch dependent queries width"]
    key: Float[Tensor, "batch dependent keys width"]
    value: Float[Tensor, "batch heads keys value_width"]
    mask: Bool[Tensor, "#batch #heads #queries keys"] | None
    scaling: float
    query_slots: Int[Tensor, "#batch queries"]
    key_slots: Int[Tensor, "#batch keys"]
    longest: int = 0
    bias: Float[Tensor, "#batch #dependent #queries keys"] | None = None
    softcap: float | None = None
    dropout: float = 0.0
    real: Bool[Tensor, "batch queries"] | None = None
    dependent: Heads | None = None
    first: int = 0
    causal: bool = False
    outer: Rule | None = None
    texts: tuple[bytes, ...] | None = None
    batch: MicroBatch | None = None
    ends: Int[Tensor, "#batch 1 1"] | None = None
    window: int | None = None
    position_ids: Int[Tensor, "#batch queries"] | None = None

    @property
    def every(self) -> Heads:
        """All heads of the layer."""
        return tuple(range(self.value.shape[1]))

    @property
    def visible(self) -> Bool[Tensor, "#batch #heads #queries keys"] | None:
        """The keys that constants may weigh: of packed inputs all tokens, of padded ones those that
        the model's mask allows; None where they may all.
        """
        return self.mask if self.batch is None else real_keys(self.batch)

    def parts(self) -> Iterator[LayerAttention]:
        """The same call, some queries at a time: A of a part is small, however long a text is."""
        batch, heads, queries, _ = self.query.shape
        rows = max(1, _ENTRIES // max(1, batch * heads * self.key.shape[-2]))
        if rows >= queries:
            yield self
            return

        def cut(states: Tensor | None) -> Tensor | None:
            return states if states is None or states.shape[-2] == 1 else states[:, :, some]

        for start in range(0, queries, rows):
            some = slice(start, start + rows)
            yield replace(
                self,
                query=self.query[:, :, some],
                query_slots=self.query_slots[:, some],
                real=self.real_queries[:, some],
                ends=self.last_slots,
                first=self.first + start,
                mask=cut(self.mask),
                bias=cut(self.bias),
                position_ids=self.position_ids
                if self.position_ids is None
                else self.position_ids[:, some],
            )

    @cached_property
    def real_queries(self) -> Bool[Tensor, "batch queries"]:
        """Which queries are tokens and no padding: those that may look at themselves."""
        if self.real is not None:
            return self.real
        inputs, queries = self.query.shape[0], self.query.shape[-2]
        if self.mask is None:
            return self.query.new_ones(inputs, queries, dtype=torch.bool)
        square = self.mask[:, 0].expand(-1, queries, -1)
        return square.diagonal(offset=self.first, dim1=-2, dim2=-1).expand(inputs, -1)

    @property
    def last_slots(self) -> Int[Tensor, "#batch 1 1"]:
        """The slot of each text's last token where it is apart, as in an encoder; else -1."""
        if self.causal:
            return self.key_slots.new_full((1, 1, 1), -1)
        if self.ends is not None:
            return self.ends
        return (self.query_slots * self.real_queries).amax(dim=1)[:, None, None]

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """How many tokens each input has, up to the last query."""
        if self.real is not None:
            return self.real.sum(dim=1)
        return (self.query_slots * self.real_queries).amax(dim=1) + 1

    def probabilities(
        self, heads: Heads, seen: Bool[Tensor, "#batch 1 queries keys"] | None = None
    ) -> Float[Tensor, "batch chosen queries keys"]:
        """A of some heads, float32 at least; restricted to the pairs that are ``seen``."""
        query, key, bias = self._own(heads)
        # Queries are scaled, not scores: m · width numbers in place of m · m.
        scores = (at_least_single(query) * self.scaling) @ at_least_single(key).mT
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if bias is not None:
            scores = scores + bias
        # By autocast the scores are in half precision again.
        scores = at_least_single(scores)
        # Not -inf: a row of padding, which nobody reads, would turn all that follows into NaN.
        lowest = torch.finfo(scores.dtype).min
        for mask in (self.mask, seen):
            if mask is not None:
                scores.masked_fill_(~chosen(mask, heads), lowest)
        return scores.softmax(dim=-1)

    def output(self, heads: Heads) -> Float[Tensor, "batch chosen queries value_width"]:
        """What some heads put out by themselves: A·V, or as the block around this one has it."""
        if self.outer is not None:
            return self.outer(self, heads)
        return self.times(chosen(self.value, heads), heads)

    def times(
        self, value: Float[Tensor, "batch chosen keys value_width"], heads: Heads
    ) -> Float[Tensor, "batch chosen queries value_width"]:
        """A of some heads times values, which may be another layer's; by the fused kernel, which
        holds no A, where there is one.
        """
        if self.softcap is not None:
            rows = (part.probabilities(heads).to(value.dtype) for part in self.parts())
            return torch.cat([dropped(part, self.dropout) @ value for part in rows], dim=2)
        query, key, bias = self._own(heads)
        # On a CPU the fused backward pass is fourteen times as slow in bfloat16 as the forward one.
        if bias is not None or (value.requires_grad and value.device.type == "cpu"):
            value = at_least_single(value)
        mask = self.mask if self.mask is None else chosen(self.mask, heads)
        if bias is not None:
            bias = bias.to(value.dtype)
            lowest = torch.finfo(bias.dtype).min
            mask = bias if mask is None else bias.masked_fill(~mask, lowest)
        query, key = query.to(value.dtype), key.to(value.dtype)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout, scale=self.scaling
        )

    def _own(self, heads: Heads) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries, keys and bias of some dependent heads."""
        if self.dependent is not None:
            heads = tuple(map(self.dependent.index, heads))
        bias = self.bias if self.bias is None else chosen(self.bias, heads)
        return chosen(self.query, heads), chosen(self.key, heads), bias


def at_least_single(states: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half precision as float32; float32 and float64 as they are."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def dropped(rows: Float[Tensor, "..."], dropout: float) -> Float[Tensor, "..."]:
    """Rows of attention, some entries dropped."""
    return F.dropout(rows, dropout) if dropout > 0 else rows


def chosen(states: Tensor, heads: Heads) -> Tensor:
    """Some heads of states [batch, heads, …]; themselves where these are all, or share them."""
    if states.shape[1] == 1 or heads == tuple(range(states.shape[1])):
        return states
    return states[:, indices(heads, states.device)]


def real_keys(batch: MicroBatch) -> Bool[Tensor, "batch 1 1 m"] | None:
    """Where inputs have a token; None where they have one everywhere, as kernels are faster
    without.
    """
    return None if batch.dense else batch.attention_mask[:, None, None, :]


@lru_cache(maxsize=4096)
def indices(heads: Heads, device: torch.device) -> Int[Tensor, " chosen"]:
    """Head numbers on a device, moved there once."""
    with torch.inference_mode(False):
        return torch.tensor(heads, dtype=torch.long).to(device)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What heads of one layer put out, in a block; ``outer`` is the rule of the block around it."""

    outer: Rule | None = None

    @property
    def constant(self) -> frozenset[int]:
        """Heads that need no queries and keys."""
        return frozenset()

    def __call__(
        self, attention: LayerAttention, heads: Heads
    ) -> Float[Tensor, "batch chosen queries width"]:
        """What these heads put out."""
        return self.put_out(replace(attention, outer=self.outer), heads)

    def put_out(self, attention: LayerAttention, heads: Heads) -> Tensor:
        """The same, where ``attention.output`` is that of the block around."""
        raise NotImplementedError


class StopForward(Exception):
    """Raised by a rule that needs no more of the forward pass; ends it in ``Encoder.observe``."""


See = Callable[[LayerAttention, int], Tensor]
"""What is shown a layer's attention and number, and gives what all its heads put out."""


@dataclass(frozen=True, kw_only=True)
class Watching(Rule):
    """The rule of one layer that is seen; what a ``last`` one puts out is seen by nobody."""

    see: See
    layer: int
    last: bool = False

    def put_out(self, attention: LayerAttention, heads: Heads) -> Tensor:
        output = self.see(attention, self.layer)
        if self.last:
            raise StopForward
        return output


@dataclass
class Dispatch:
    """What the attention modules of one model share.

    Attributes:
        modules: that of each layer; one stands for several layers where they share weights.
        heads: of each layer.
        rules: of the layers that have one.
        batch: what packed tokens are of; None where they are padded.
        slots, real: of padded tokens, the slot of each and whether it is one, where the caller of
            the model knows.
        seen_real: which padded tokens up to those of the current pass are real, likewise.
        texts: as in ``LayerAttention``.
        reached: whether attention came by since the last pass began; None before any.
        calls: of each module in the current pass.
        places: where padded queries and keys stand, by how many there are, likewise.
        kept_rows: of linear maps, those for some heads, while ``rules`` are in force.
    """

    modules: Sequence[nn.Module]
    heads: int
    rules: Mapping[int, Rule] = field(default_factory=dict)
    batch: MicroBatch | None = None
    slots: Int[Tensor, "#batch tokens"] | None = None
    real: Bool[Tensor, "batch tokens"] | None = None
    seen_real: Bool[Tensor, "batch seen"] | None = None
    texts: tuple[bytes, ...] | None = None
    reached: bool | None = None
    calls: Counter[nn.Module] = field(default_factory=Counter)
    places: dict[Any, tuple[Tensor, Tensor, int, int]] = field(default_factory=dict)
    kept_rows: dict[Any, Any] = field(default_factory=dict)

    def begin(self, batch: MicroBatch | None = None) -> None:
        """Start a forward pass; over a packed ``batch``, which lies on the model's device."""
        self.batch, self.reached = batch, self.reached or False
        self.calls.clear()
        self.places.clear()

    def layer(self, module: nn.Module) -> int:
        """The layer that a module stands for at its next call."""
        own = [layer for layer, one in enumerate(self.modules) if one is module]
        return own[self.calls[module] % len(own)]

    def dependent_heads(self, module: nn.Module) -> Heads | None:
        """The heads whose queries and keys a module's next call needs; None for all."""
        rule = self.rules.get(self.layer(module))
        if rule is None or not rule.constant:
            return None
        return tuple(head for head in range(self.heads) if head not in rule.constant)

    @property
    def packed(self) -> MicroBatch:
        """The packed batch of the forward pass in progress."""
        assert self.batch is not None, "attention was called outside Encoder.token_states"
        return self.batch

    def slot_distances(self) -> Int[Tensor, "m m"]:
        """By how many slots column i comes after column j, in the current batch."""
        return self.packed.columns[:, None] - self.packed.columns

    @contextmanager
    def ruled(self, rules: Mapping[int, Rule]) -> Iterator[None]:
        """Inside the block layers follow ``rules``, which find what those in force leave of the
        heads.
        """
        before = self.rules
        inner = {layer: replace(rule, outer=before.get(layer)) for layer, rule in rules.items()}
        self.rules = {**before, **inner}
        try:
            yield
        finally:
            self.rules = before
            self.kept_rows.clear()


Bias = Callable[[Tensor, Tensor], Tensor | None]
"""From queries and keys, input by input, to what is added to their scores."""


def attend(
    module: nn.Module,
    query: Float[Tensor, "batch projected queries width"],
    key: Float[Tensor, "batch key_heads keys width"],
    value: Float[Tensor, "batch value_heads keys value_width"],
    attention_mask: Tensor | None = None,
    *,
    bias: Bias | None = None,
    **options: Any,
) -> Float[Tensor, "batch queries heads value_width"]:
    """What the heads of a module's layer put out: of packed tokens, side by side in one row, or of
    padded ones, whose ``attention_mask`` the model made; ``options`` are of ``LayerAttention``.
    """
    dispatch: Dispatch | None = getattr(module, "papa_dispatch", None)
    dispatch = dispatch or Dispatch([module], query.shape[1])
    if dispatch.batch is None:
        call = _padded(dispatch, module, query, key, value, attention_mask, options)
    else:
        call = _packed(dispatch, module, query, key, value, bias, options)
    rule = dispatch.rules.get(dispatch.layer(module))
    dispatch.calls[module] += 1
    dispatch.reached = True
    output = call.output(call.every) if rule is None else rule(call, call.every)
    output = output.to(value.dtype)
    if call.batch is not None:
        return call.batch.pack(output).transpose(1, 2)
    return output.transpose(1, 2).contiguous()


def _packed(
    dispatch: Dispatch,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Bias | None,
    options: dict[str, Any],
) -> LayerAttention:
    batch, dependent = dispatch.packed, dispatch.dependent_heads(module)
    options.pop("position_ids", None)  # Of all inputs side by side.
    mask, slots, added = real_keys(batch), batch.columns[None], None
    if (window := options.get("window")) is not None:
        distances = dispatch.slot_distances()
        near = (distances.abs() < window)[None, None]
        # A row of padding sees itself, as an empty one may give NaN.
        mask = near if mask is None else near & mask | (distances == 0)
    if dependent == ():
        # Stand-ins without a head.
        query = key = query.new_empty(len(batch.rows), 0, len(batch.columns), query.shape[-1])
    else:
        own = dependent or tuple(range(dispatch.heads))
        # Where one map gives queries, keys and values, those of all heads are there.
        whole = query.shape[1] == dispatch.heads
        query, key = (
            batch.unpack(chosen(states, own) if whole else states) for states in (query, key)
        )
        added = None if bias is None else bias(query, key)
        if added is not None and added.shape[1] == dispatch.heads:
            added = chosen(added, own)
    return LayerAttention(
        query,
        key,
        batch.unpack(value),
        mask,
        query_slots=slots,
        key_slots=slots,
        bias=added,
        real=batch.attention_mask,
        dependent=dependent,
        batch=batch,
        **options,
    )


def _padded(
    dispatch: Dispatch,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    options: dict[str, Any],
) -> LayerAttention:
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, torch.finfo(query.dtype).min)
    causal = bool(getattr(module, "is_causal", False))
    # A model may lie on several devices.
    size = query.shape[-2], key.shape[-2], query.device
    if size not in dispatch.places:
        given = dispatch.seen_real, options.get("position_ids"), causal
        found = _slots(*given, *size)
        if dispatch.slots is not None:
            slots = dispatch.slots.to(query.device)
            found = slots, slots, 0
        # Once a pass and not a layer: on a GPU it waits for what was asked before.
        dispatch.places[size] = *found, int(found[1].max()) + 1
    query_slots, key_slots, first, longest = dispatch.places[size]
    groups = query.shape[1] // key.shape[1]
    return LayerAttention(
        query,
        key.repeat_interleave(groups, dim=1),
        value.repeat_interleave(groups, dim=1),
        None if bias is None else bias > torch.finfo(bias.dtype).min / 2,
        query_slots=query_slots,
        key_slots=key_slots,
        longest=longest,
        bias=bias,
        real=dispatch.real,
        first=first,
        causal=causal,
        texts=dispatch.texts,
        **options,
    )


def _slots(
    real: Bool[Tensor, "batch seen"] | None,
    position_ids: Tensor | None,
    causal: bool,
    queries: int,
    keys: int,
    device: torch.device,
) -> tuple[Tensor, Tensor, int]:
    """Positions of queries and keys, and where among the keys the first query's own is: from a
    text's first token, as texts may be padded on either side; in a causal model real tokens count.
    """
    if real is not None and not causal and real.shape[1] == keys:
        places = torch.arange(keys, device=device) - real.int().argmax(dim=1)[:, None].to(device)
        return places.clamp(min=0), places.clamp(min=0), 0
    if real is not None and causal:
        counted = (real.long().cumsum(dim=1) - 1).clamp(min=0).to(device)
        # A cache of a fixed size has keys to come, one of a window has lost the first.
        first = min(keys, counted.shape[1]) - queries
        padded = F.pad(counted, (0, max(0, keys - counted.shape[1])))
        return counted[:, -queries:], padded[:, -keys:], first
    last = keys if position_ids is None else int(position_ids[..., -1].max()) + 1
    by_index = torch.arange(max(keys, last), device=device)[None]
    if not causal or last > keys:
        return by_index[:, last - queries : last], by_index[:, -keys:], keys - queries
    return by_index[:, last - queries : last], by_index[:, :keys], last - queries


# The mask holds the first; the others say what to return, or how to compute the same.
_WITHOUT_EFFECT = {
    *("is_causal", "cache_position", "token_type_ids", "mm_token_type_ids", "deterministic"),
    *("output_attentions", "output_hidden_states", "output_router_logits", "return_dict"),
    *("use_cache", "num_items_in_batch"),
}
"""Arguments of attention functions that do not change what attention is."""


# A compiled pass would keep the rules of the block in which it was compiled.
@torch.compiler.disable
def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_ids: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """PAPA's entry in transformers' attention interface."""
    for name, given in others.items():
        # It would be lost, such as the sinks of gpt-oss.
        if given is not None and name not in _WITHOUT_EFFECT:
            raise EncoderError(
                f"{type(module).__name__} gives its attention '{name}', which would be lost: its "
                "heads cannot be replaced"
            )
    found = attend(
        module,
        query,
        key,
        value,
        attention_mask,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        dropout=dropout,
        softcap=softcap,
        window=sliding_window,
        position_ids=position_ids,
    )
    return found, None


def _no_mask(*_: object, **__: object) -> None:
    """Of packed tokens: no mask of all tokens × all tokens is built."""


PACKED, PADDED = "papa", "papa_padded"
for _name, _mask in ((PACKED, _no_mask), (PADDED, eager_mask)):
    AttentionInterface.register(_name, _attention)
    AttentionMaskInterface.register(_name, _mask)
