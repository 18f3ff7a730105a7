"""Attention of a model that the user holds, passed through rules while a block runs.

transformers looks an attention function and a mask function up by the name in a model's
configuration. Inside a block that name is ours: each layer hands its queries, keys, values and the
mask that the model made to the rule of that layer. Nothing else of the model changes.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.masking_utils import eager_mask

from papa.encoders.dispatch import refuse_unknown
from papa.encoders.supported import family_of
from papa.errors import DataError, EncoderError

_NAME = "papa_ablated"
_REPLACEABLE = ("eager", "sdpa", "flex_attention", "flash_attention", "papa", "paged")
"""Attention functions whose results rules give."""
_WRAPPED = {"model.get_base_model()": "get_base_model", "model.module": "module"}
"""How the model inside of one of peft, or of one in parallel, is reached, by what tells it."""
_ENTRIES = 2**22
"""Of A, held at once."""


@dataclass(frozen=True)
class LayerAttention:
    """One call of one layer's attention, heads counted by query.

    Attributes:
        query: of every head.
        key, value: of every head; keys and values that heads share are repeated.
        bias: what the model adds to the scaled scores: its mask; None where it adds nothing.
        scaling: factor on the dot products.
        softcap: scores are bounded by it (Gemma 2); None where they are not.
        dropout: probability with which entries of A are dropped.
        query_slots, key_slots: the position of each in its text, from 0; one row where all inputs
            have the same.
        first: where among the keys the first query's own key is.
        causal: whether the model is a decoder, whose tokens see none after them.
        outer: the rule of a block around this one, whose outputs are then the heads' own; None
            where there is none.
        texts: what tells the texts of a pass apart, one each; None where that is not known.
    """

    query: Float[Tensor, "batch heads queries width"]
    key: Float[Tensor, "batch heads keys width"]
    value: Float[Tensor, "batch heads keys value_width"]
    bias: Float[Tensor, "#batch #heads #queries keys"] | None
    scaling: float
    softcap: float | None
    dropout: float
    query_slots: Int[Tensor, "#batch queries"]
    key_slots: Int[Tensor, "#batch keys"]
    first: int
    causal: bool
    outer: LayerRule | None = None
    texts: tuple[bytes, ...] | None = None

    def parts(self) -> Iterator[LayerAttention]:
        """The same call, some queries at a time: A of a part is small, however long a text is."""
        batch, heads, queries, _ = self.query.shape
        rows = max(1, _ENTRIES // (batch * heads * self.key.shape[-2]))
        if rows >= queries:
            yield self
            return
        for start in range(0, queries, rows):
            some, bias = slice(start, start + rows), self.bias
            yield replace(
                self,
                query=self.query[:, :, some],
                bias=bias if bias is None or bias.shape[-2] == 1 else bias[:, :, some],
                query_slots=self.query_slots[:, some],
                first=self.first + start,
            )

    @cached_property
    def allowed(self) -> Bool[Tensor, "#batch #heads queries keys"]:
        """Whether a query may look at a key, by the model's own mask."""
        queries, keys = self.query.shape[-2], self.key.shape[-2]
        if self.bias is None:
            return self.query.new_ones(1, 1, queries, keys, dtype=torch.bool)
        allowed = self.bias > torch.finfo(self.bias.dtype).min / 2
        return allowed.expand(*allowed.shape[:2], queries, keys)

    @cached_property
    def real_queries(self) -> Bool[Tensor, "batch queries"]:
        """Which queries are tokens and no padding: those that may look at themselves."""
        allowed = self.allowed[:, 0]
        own = allowed.diagonal(offset=self.first, dim1=-2, dim2=-1)
        return own.expand(self.query.shape[0], -1)

    def probabilities(
        self,
        heads: Int[Tensor, " chosen"],
        seen: Bool[Tensor, "#batch 1 queries keys"] | None = None,
    ) -> Float[Tensor, "batch chosen queries keys"]:
        """A of some heads, float32 at least; restricted to the pairs that are ``seen``."""
        query, key = self.query[:, heads], self.key[:, heads]
        scores = torch.matmul(query, key.transpose(-1, -2)) * self.scaling
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        if self.bias is not None:
            scores = scores + (self.bias if self.bias.shape[1] == 1 else self.bias[:, heads])
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))

    def output(
        self, heads: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "batch chosen queries value_width"]:
        """What some heads put out by themselves: A·V, or as the block around this one has it."""
        if self.outer is not None:
            return self.outer(replace(self, outer=None))[:, heads]
        return self.times(self.value[:, heads], heads)

    def times(
        self, value: Float[Tensor, "batch chosen keys value_width"], heads: Int[Tensor, " chosen"]
    ) -> Float[Tensor, "batch chosen queries value_width"]:
        """A of some heads times values, which may be another layer's."""
        weights = (part.probabilities(heads).to(value.dtype) for part in self.parts())
        dropped = (
            nn.functional.dropout(part, self.dropout, training=self.dropout > 0) for part in weights
        )
        return torch.cat([torch.matmul(part, value) for part in dropped], dim=2)

    def every_head(self) -> Int[Tensor, " heads"]:
        return torch.arange(self.query.shape[1], device=self.query.device)


LayerRule = Callable[[LayerAttention], Float[Tensor, "batch heads queries value_width"]]
"""What all heads of a layer put out."""


@dataclass
class _Routing:
    """What the attention modules of one model share inside a block.

    Attributes:
        rules: of the layers that have one.
        real: which tokens up to those of the current pass are real, where the caller said so.
        texts: as in ``LayerAttention``.
        passes: forward passes begun.
        reached: whether a layer's attention came by.
    """

    rules: Mapping[int, LayerRule]
    modules: list[nn.Module]
    real: Bool[Tensor, "batch seen"] | None = None
    texts: tuple[bytes, ...] | None = None
    passes: int = 0
    reached: bool = False


@dataclass
class _Place:
    """The layers that an attention module stands for, in the order of its calls; several where
    layers share weights.
    """

    routing: _Routing
    layers: list[int] = field(default_factory=list)
    calls: int = 0

    def next_rule(self) -> LayerRule | None:
        layer = self.layers[self.calls % len(self.layers)]
        self.calls += 1
        return self.routing.rules.get(layer)


_places: weakref.WeakKeyDictionary[nn.Module, _Place] = weakref.WeakKeyDictionary()


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The module that computes attention in each layer, first layer first; a shared one as often as
    it is used.
    """
    if hasattr(model, "_orig_mod"):
        raise EncoderError(
            "the model is compiled by torch.compile: give the model before it, model._orig_mod"
        )
    if not isinstance(model, PreTrainedModel):
        inner = next((path for path, own in _WRAPPED.items() if hasattr(model, own)), "")
        raise EncoderError(
            f"expected a model of transformers, found a {type(model).__name__}"
            f"{f': give {inner}' if inner else ''}"
        )
    config: Any = model.config
    family = family_of(config.model_type)
    if family is not None and family.attention_implementation == "papa":
        return list(family.attentions(model.base_model))
    found = [module for module in model.modules() if _calls_interface(module)]
    if family is not None or not found:
        raise EncoderError(
            f"{type(model).__name__} ({config.model_type}) computes attention outside of "
            "transformers' attention interface, so its heads cannot be replaced in place: load it "
            "with papa.load_encoder where it is supported"
        )
    kinds = {type(module) for module in found}
    if (
        config.is_encoder_decoder
        and hasattr(model.base_model, "decoder")
        and hasattr(model.base_model, "encoder")
    ):
        raise EncoderError(
            f"{type(model).__name__} has an encoder and a decoder: give one of them, such as "
            "model.get_encoder()"
        )
    if len(kinds) > 1 or len({id(getattr(module, "config", None)) for module in found}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise EncoderError(
            f"{type(model).__name__} has several kinds of attention ({names}): give one of its "
            "parts"
        )
    return found


def head_count(module: nn.Module) -> int:
    """How many heads an attention module has, counted by query."""
    config: Any = getattr(module, "config", None)
    for name in ("num_heads", "num_attention_heads", "n_heads"):
        for holder in (module, config):
            if isinstance(found := getattr(holder, name, None), int):
                return found
    raise EncoderError(f"{type(module).__name__} does not say how many heads it has")


def _calls_interface(module: nn.Module) -> bool:
    code = getattr(type(module).forward, "__wrapped__", type(module).forward).__code__
    return "ALL_ATTENTION_FUNCTIONS" in code.co_names


@contextmanager
def routed(
    model: PreTrainedModel, modules: Sequence[nn.Module], rules: Mapping[int, LayerRule]
) -> Iterator[None]:
    """Inside the block the layers of ``model`` follow ``rules``; after it, it is as it was.

    Inside another block of the same layers, ``rules`` find what that one leaves of the heads.
    """
    held = {id(found.routing): found.routing for found in map(_places.get, modules) if found}
    if held:
        (routing, *others) = held.values()
        if others or routing.modules != list(modules):
            raise EncoderError(
                "papa.ablated holds other layers of the model already: give the same model to "
                "both blocks"
            )
        before = routing.rules
        inner = {layer: _inside(before.get(layer), rule) for layer, rule in rules.items()}
        routing.rules = {**before, **inner}
        try:
            yield
        finally:
            routing.rules = before
        return
    if model.training and any(
        getattr(part, "gradient_checkpointing", False) for part in model.modules()
    ):
        raise EncoderError(
            "the model checkpoints gradients: it would repeat passes after the block, with its "
            "own attention; switch that off first"
        )
    # Those that the model's modules look their attention function up in.
    parts = (getattr(part, "config", None) for part in model.modules())
    configurations: list[Any] = [one for one in parts if isinstance(one, PreTrainedConfig)]
    routing = _Routing(rules, list(modules))
    with ExitStack() as after:
        for layer, module in enumerate(modules):
            _places.setdefault(module, _Place(routing)).layers.append(layer)
            after.callback(_places.pop, module, None)
        for part in model.modules():
            if isinstance(part, PreTrainedModel):
                after.callback(_begins_pass(part, routing, modules).remove)
        for config in {id(config): config for config in configurations}.values():
            before = config._attn_implementation_internal
            if before is not None and not before.startswith(_REPLACEABLE):
                raise EncoderError(
                    f"the model's attention function is '{before}', which its other heads would "
                    "lose: call model.set_attn_implementation('eager') first"
                )
            after.callback(setattr, config, "_attn_implementation_internal", before)
            config._attn_implementation_internal = _NAME
        yield
        if routing.passes and not routing.reached:
            raise EncoderError(
                "no attention of the model passed through transformers' interface, so no head was "
                "replaced: something else has exchanged the forward methods of its layers"
            )


def _inside(outer: LayerRule | None, rule: LayerRule) -> LayerRule:
    """A rule within another block's."""
    return lambda attention: rule(replace(attention, outer=outer))


def _begins_pass(part: nn.Module, routing: _Routing, modules: Sequence[nn.Module]) -> Any:
    signature = inspect.signature(part.forward)

    @torch.compiler.disable
    def begin(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = signature.bind_partial(*arguments, **options).arguments
        given |= given.get("kwargs", {})
        asked = given.get("output_attentions")
        config: Any = part.config
        if config.output_attentions if asked is None else asked:
            raise EncoderError(
                "inside papa.ablated no attention matrices are put out: call the model without "
                "output_attentions"
            )
        routing.real = _real_tokens(given.get("attention_mask"))
        positions = given.get("position_ids")
        if isinstance(positions, Tensor) and positions.dim() == 2:
            _refuse_packed(positions, routing.real)
        if inputs := [given[name] for name in _INPUTS if isinstance(given.get(name), Tensor)]:
            routing.texts = _texts(inputs[0], routing.real)
        routing.passes += 1
        for module in modules:
            _places[module].calls = 0

    return part.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)


_INPUTS = ("input_ids", "pixel_values", "input_values", "input_features", "inputs_embeds")


def _real_tokens(mask: Any) -> Bool[Tensor, "batch seen"] | None:
    """Which tokens are real, up to the last of the pass: from a mask of tokens, or from what each
    query may see of the keys. A key is real where a later query sees it, and the last one is.
    """
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention", next(iter(mask.values()), None))
    if not isinstance(mask, Tensor) or mask.dim() not in (2, 4):
        return None
    if mask.dim() == 2:
        return mask.bool()
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    allowed, places = allowed[:, 0], torch.arange(mask.shape[-1], device=mask.device)
    own = (allowed * places).amax(dim=-1)
    seen = int(own[:, -1].max()) + 1
    # Rows of padding may see all.
    whole = allowed.all(dim=-1, keepdim=True)
    whole[:, -1] = False
    real = (allowed & ~whole & (places < own[..., None])).any(dim=1)
    return (real | (places == own[:, -1:]) & allowed[:, -1])[:, :seen]


def _refuse_packed(
    positions: Int[Tensor, "batch tokens"], real: Bool[Tensor, "batch seen"] | None
) -> None:
    again = positions[:, 1:] <= positions[:, :-1]
    if real is not None:
        own = real[:, -positions.shape[1] :]
        again = again & own[:, 1:] & own[:, :-1] if own.shape == positions.shape else again
    if again.any():
        raise DataError(
            "position_ids start again inside a row: give each text a row of its own, padded on the "
            "right or the left"
        )


def _texts(inputs: Tensor, real: Bool[Tensor, "batch seen"] | None) -> tuple[bytes, ...]:
    rows: Any = inputs
    if real is not None and real.shape == inputs.shape:
        rows = (row[own] for row, own in zip(inputs, real, strict=True))
    return tuple(sha256(row.detach().cpu().numpy().tobytes()).digest() for row in rows)


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
        padded = nn.functional.pad(counted, (0, max(0, keys - counted.shape[1])))
        return counted[:, -queries:], padded[:, -keys:], first
    last = keys if position_ids is None else int(position_ids[..., -1].max()) + 1
    by_index = torch.arange(max(keys, last), device=device)[None]
    if not causal or last > keys:
        return by_index[:, last - queries : last], by_index[:, -keys:], keys - queries
    return by_index[:, last - queries : last], by_index[:, :keys], last - queries


# A compiled pass would keep the rules of the block in which it was compiled.
@torch.compiler.disable
def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """PAPA's entry in transformers' attention interface, for models in the user's own loop."""
    refuse_unknown(module, others)
    known, groups = _places.get(module), query.shape[1] // key.shape[1]
    causal = bool(getattr(module, "is_causal", False))
    real = known.routing.real if known else None
    positions = others.get("position_ids")
    query_slots, key_slots, first = _slots(
        real, positions, causal, query.shape[-2], key.shape[-2], query.device
    )
    layer = LayerAttention(
        query,
        key.repeat_interleave(groups, dim=1),
        value.repeat_interleave(groups, dim=1),
        attention_mask,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap,
        dropout,
        query_slots,
        key_slots,
        first=first,
        causal=causal,
        texts=known.routing.texts if known else None,
    )
    if known:
        known.routing.reached = True
    rule = known.next_rule() if known else None
    output = layer.output(layer.every_head()) if rule is None else rule(layer)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, eager_mask)
