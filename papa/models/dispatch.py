"""The one place through which every layer's attention passes, so that it can be watched, replaced
or mixed. A layer hands over its queries, keys and values, by transformers' attention interface or
by its family's forward method; its rule, if any, decides what its heads put out.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from papa.errors import EncoderError
from papa.models.layer import Heads, LayerAttention, PassTexts, Rule, chosen, real_keys
from papa.text.batches import MicroBatch


@dataclass
class Dispatch:
    """What the attention modules of one model share.

    Attributes:
        modules: that of each layer; one stands for several layers where they share weights.
        rules: of the layers that have some, those of outer blocks first.
        batch: what packed tokens are of; None where they are padded.
        slots, real, seen_real: the slot of each token, and which are real, of the pass and before,
            where the caller knows.
        before: how many tokens each text has before those of ``seen_real``, as a cache of a window
            has lost them.
        matrices: whether a pass of padded tokens shall give them, too.
        reached: whether attention came by since the last pass began; None before any.
        calls, places: of each module, and by how many queries and keys, in the current pass.
    """

    modules: Sequence[nn.Module]
    heads: int
    rules: Mapping[int, tuple[Rule, ...]] = field(default_factory=dict)
    batch: MicroBatch | None = None
    slots: Int[Tensor, "#batch tokens"] | None = None
    real: Bool[Tensor, "batch tokens"] | None = None
    seen_real: Bool[Tensor, "batch seen"] | None = None
    before: Int[Tensor, "batch 1"] | int = 0
    texts: PassTexts | None = None
    matrices: bool = False
    reached: bool | None = None
    calls: Counter[nn.Module] = field(default_factory=Counter)
    places: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def begin(self, batch: MicroBatch | None = None) -> None:
        """Start a forward pass; over a packed ``batch``, which lies on the model's device."""
        self.batch, self.reached = batch, self.reached or False
        if batch is not None:
            self.slots, self.real = batch.columns[None], batch.attention_mask
        self.calls.clear()
        self.places.clear()

    def layer(self, module: nn.Module) -> int:
        """The layer that a module stands for at its next call."""
        own = [layer for layer, one in enumerate(self.modules) if one is module]
        return own[self.calls[module] % len(own)]

    def dependent_heads(self, module: nn.Module) -> Heads | None:
        """The heads whose queries and keys a module's next call needs; None for all."""
        constant = frozenset[int]()
        for rule in self.rules.get(self.layer(module), ()):
            constant = rule.constant(constant)
        return tuple(h for h in range(self.heads) if h not in constant) if constant else None

    def distances(self, tokens: Float[Tensor, "batch tokens *width"]) -> Int[Tensor, "m m"]:
        """By how many slots column i of the current pass comes after column j."""
        if self.batch is None:
            slots = torch.arange(tokens.shape[1], device=tokens.device)
        else:
            slots = self.batch.columns
        return slots[:, None] - slots

    def places_of(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        causal: bool,
    ) -> dict[str, Any]:
        """Where queries and keys stand, once a pass, as on a GPU it waits."""
        queries, keys, device = size = query.shape[-2], key.shape[-2], query.device
        if size in self.places:
            return self.places[size]
        real, seen, first = self.real, self.seen_real, 0
        # From a text's first token, as texts may be padded on either side; in a causal model real
        # tokens count.
        if self.slots is not None:
            own = others = self.slots.to(device)  # A model may lie on several devices.
        elif seen is not None and not causal and seen.shape[1] == keys:
            before = seen.int().argmax(dim=1)[:, None].to(device)
            own = others = (torch.arange(keys, device=device) - before).clamp(min=0)
        elif seen is not None and causal:
            counted = ((seen.long().cumsum(dim=1) - 1).clamp(min=0) + self.before).to(device)
            # A cache of a fixed size has keys to come, one of a window has lost the first.
            first = min(keys, counted.shape[1]) - queries
            own = counted[:, -queries:]
            others = F.pad(counted, (0, max(0, keys - counted.shape[1])))[:, -keys:]
        else:
            until = keys if position_ids is None else int(position_ids[..., -1].max()) + 1
            by_index = torch.arange(max(keys, until), device=device)[None]
            own, window = by_index[:, until - queries : until], not causal or until > keys
            first = (keys if window else until) - queries
            others = by_index[:, -keys:] if window else by_index[:, :keys]
        if self.slots is None:
            # Tokens, and no padding, may look at themselves.
            every = query.new_ones(1, 1, 1, keys, dtype=torch.bool) if mask is None else mask
            square = every[:, 0].expand(len(query), queries, -1)
            real = square.diagonal(offset=first, dim1=-2, dim2=-1)
        assert real is not None
        last = (own * real).amax(dim=1)
        self.places[size] = {
            "query_slots": own,
            "key_slots": others,
            "real": real,
            "lengths": last + 1 if self.slots is None else real.sum(dim=1),
            "ends": last.new_full((1, 1, 1), -1) if causal else last[:, None, None],
            "longest": 0 if self.batch is not None else int(others.max()) + 1,
        }
        return self.places[size]

    @contextmanager
    def ruled(self, rules: Mapping[int, Rule]) -> Iterator[None]:
        """Inside the block layers follow ``rules``, of what those in force leave of the heads."""
        before = self.rules
        inner = {layer: (*before.get(layer, ()), rule) for layer, rule in rules.items()}
        self.rules = {**before, **inner}
        try:
            yield
        finally:
            self.rules = before


def split_heads(
    states: Float[Tensor, "batch n heads_width"], head_width: int
) -> Float[Tensor, "batch heads n width"]:
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)


# The mask holds the first; the others say what to return, or how to compute the same.
_WITHOUT_EFFECT = {
    *("is_causal", "cache_position", "token_type_ids", "mm_token_type_ids", "deterministic"),
    *("output_attentions", "output_hidden_states", "output_router_logits", "return_dict"),
    *("use_cache", "num_items_in_batch", "logits_to_keep"),
}
"""Arguments of attention functions that do not change what attention is."""
_OF_FLASH = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"}
"""Arguments that models give to flash attention alone."""
_LEAST_VISIBLE = -9e3
"""An additive mask of less hides a key: masks by hand hold -10,000, which bfloat16 rounds."""


def visible(mask: Tensor) -> Bool[Tensor, "..."]:
    """Where a mask, boolean or additive, lets queries see keys."""
    return mask if mask.dtype == torch.bool else mask > _LEAST_VISIBLE


def is_served(argument: str) -> bool:
    """Whether rules keep what a module gives its attention function by this name."""
    known = {*inspect.signature(attend).parameters, *_WITHOUT_EFFECT, *_OF_FLASH}
    return argument in known


def _without_places(query: Tensor, key: Tensor) -> dict[str, Any]:
    """Of attention without rules, such as a decoder's to an encoder's tokens."""
    batch, queries, keys = len(query), query.shape[-2], key.shape[-2]
    zeros = query.new_zeros
    return {
        "query_slots": zeros(1, queries, dtype=torch.long),
        "key_slots": zeros(1, keys, dtype=torch.long),
        "real": zeros(batch, queries, dtype=torch.bool),
        "lengths": zeros(batch, dtype=torch.long),
        "ends": zeros(1, 1, 1, dtype=torch.long),
    }


# A compiled pass would keep the rules of the block in which it was compiled.
@torch.compiler.disable
def attend(
    module: nn.Module,
    query: Float[Tensor, "batch projected queries width"],
    key: Float[Tensor, "batch key_heads keys width"],
    value: Float[Tensor, "batch value_heads keys value_width"],
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_ids: Tensor | None = None,
    bias: Callable[[Tensor, Tensor], Tensor | None] = lambda query, key: None,
    **others: Any,
) -> tuple[
    Float[Tensor, "batch queries heads value_width"],
    Float[Tensor, "batch heads queries keys"] | None,
]:
    """What the heads of a layer put out, of packed tokens in one row or of padded ones."""
    for name, given in others.items():
        # It would be lost, such as the sinks of gpt-oss.
        if given is not None and name not in _WITHOUT_EFFECT:
            raise EncoderError(
                f"{type(module).__name__} gives its attention '{name}', which would be lost: its "
                "heads cannot be replaced"
            )
    routed = hasattr(module, "papa_dispatch")
    dispatch: Dispatch = getattr(module, "papa_dispatch", Dispatch([module], query.shape[1]))
    batch, heads, mask = dispatch.batch, query.shape[1], attention_mask
    options: dict[str, Any] = {"batch": batch, "dropout": dropout, "softcap": softcap}
    options["rules"] = dispatch.rules.get(dispatch.layer(module), ())
    if batch is None:
        if mask is not None and mask.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, lowest)
        added, sharing = bias(query, key), heads // key.shape[1]
        if mask is not None:
            added = mask if added is None else mask + added
            mask = visible(mask)
        key, value = (states.repeat_interleave(sharing, dim=1) for states in (key, value))
        options["texts"] = dispatch.texts
    else:
        options["dependent"] = dependent = dispatch.dependent_heads(module)
        own = tuple(range(dispatch.heads)) if dependent is None else dependent
        mask = real_keys(batch)
        if sliding_window is not None:
            distances = dispatch.distances(query[0])
            near = (distances.abs() < sliding_window)[None, None]
            # A row of padding sees itself, as an empty one may give NaN.
            mask = near if mask is None else near & mask | (distances == 0)
        # Where one map gives queries, keys and values, those of all heads are there.
        query, key = (
            batch.unpack(chosen(states, own) if heads == dispatch.heads else states)
            for states in (query, key)
        )
        added = bias(query, key) if own else None
        if added is not None and added.shape[1] == dispatch.heads:
            added = chosen(added, own)
        value = batch.unpack(value)
    causal = bool(getattr(module, "is_causal", False))
    if routed:
        options |= dispatch.places_of(query, key, mask, position_ids, causal)
    else:
        options |= _without_places(query, key)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = LayerAttention(query, key, value, mask, scaling, bias=added, **options)
    dispatch.calls[module] += 1
    dispatch.reached = True
    output = call.output(call.every).to(value.dtype)
    if batch is not None:
        output = batch.pack(output)
    matrices = call.matrices() if dispatch.matrices and batch is None else None
    return output.transpose(1, 2).contiguous(), matrices


PACKED, PADDED = "papa", "papa_padded"
AttentionInterface.register(PACKED, attend)
AttentionInterface.register(PADDED, attend)
# Of packed tokens no mask of all tokens × all tokens is built.
AttentionMaskInterface.register(PACKED, lambda *_, **__: None)
AttentionMaskInterface.register(PADDED, eager_mask)
