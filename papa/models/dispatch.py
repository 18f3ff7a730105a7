"""The attention function of every layer, in which attention is observed, replaced or mixed.

A layer calls ``attend`` with its queries, keys and values: through transformers' attention
interface, or through a forward method for its family. The layer's rules, if it has any, decide what
its heads output.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from papa.errors import EncoderError
from papa.models.layer import Heads, LayerAttention, PassTexts, Rule, real_keys, states_of_heads
from papa.models.slots import TokenSlots, no_slots, packed_slots, padded_slots
from papa.text.batches import MicroBatch

ScoreBias = Callable[[Tensor, Tensor], Float[Tensor, "#batch #heads queries keys"] | None]
"""Takes queries and keys, of all heads or of the input-dependent ones; returns what is added to
their scaled scores, or None.
"""

Attend = Callable[..., tuple[Tensor, Tensor | None]]
"""A function with the arguments and results of ``attend``."""


@runtime_checkable
class AttentionPass(Protocol):
    """What layers that do not call transformers' interface need to know of the current pass."""

    def attention_function(self) -> Attend:
        """Return the attention function of this pass. Gradient checkpointing may call it again
        after the pass.
        """

    @property
    def reads_masks(self) -> bool:
        """Whether ``attend`` reads the attention mask; a mask of all pairs is built only then."""

    def distances(self, tokens: Float[Tensor, "batch tokens *width"]) -> Int[Tensor, "#batch m m"]:
        """Return the slot of token i minus that of token j, at [i, j]."""

    def over_slots(
        self, convolve: Callable[[Tensor], Tensor], states: Float[Tensor, "batch width tokens"]
    ) -> Float[Tensor, "batch width tokens"]:
        """Convolve over slots; slots without a token of the input hold zeros."""


@dataclass
class Dispatch:
    """What the attention modules of one model share; an ``AttentionPass``.

    Attributes:
        modules: The attention module of each layer; layers that share weights have one module.
        heads: The number of heads of each layer, counted by query.
        rules: The rules of each layer that has some, those of outer blocks first.
        batch: The packed batch of the current pass; None where tokens are padded.
        seen_real: Which tokens of the current pass and its cache are no padding; None if unknown.
        tokens_before: The number of tokens of each text that a cache with a window has dropped;
            they come before those of ``seen_real``.
        texts: The texts of the pass, for rules that tell texts apart; None if unknown.
        returns_matrices: Whether a pass of padded tokens returns attention matrices, too.
        reached: Whether any pass has called ``attend``; None before the first pass.
        calls: How often each module was called in the current pass.
        slots_by_size: The slots of the current pass by number of queries, number of keys and
            device.
    """

    modules: Sequence[nn.Module]
    heads: int
    rules: Mapping[int, tuple[Rule, ...]] = field(default_factory=dict)
    batch: MicroBatch | None = None
    seen_real: Bool[Tensor, "batch seen"] | None = None
    tokens_before: Int[Tensor, "batch 1"] | int = 0
    texts: PassTexts | None = None
    returns_matrices: bool = False
    reached: bool | None = None
    calls: Counter[nn.Module] = field(default_factory=Counter)
    slots_by_size: dict[tuple[int, int, torch.device], TokenSlots] = field(default_factory=dict)

    def begin(self, batch: MicroBatch | None = None) -> None:
        """Start a forward pass: over a packed ``batch`` on the model's device, or padded tokens."""
        self.batch = batch
        self.reached = self.reached or False
        self.calls.clear()
        self.slots_by_size.clear()

    def layers_of(self, module: nn.Module) -> list[int]:
        """Return the numbers of the layers that share a module, in the order of its calls."""
        return [layer for layer, attends in enumerate(self.modules) if attends is module]

    def layer(self, module: nn.Module) -> int:
        """Return the number of the layer to which a module's next call belongs."""
        layers = self.layers_of(module)
        return layers[self.calls[module] % len(layers)]

    def dependent_heads(self, module: nn.Module) -> Heads | None:
        """Return the heads whose queries and keys a module's next call needs; None for all."""
        constant = frozenset[int]()
        for rule in self.rules.get(self.layer(module), ()):
            constant = rule.constant(constant)
        return tuple(h for h in range(self.heads) if h not in constant) if constant else None

    def attention_function(self) -> Attend:
        return attend

    @property
    def reads_masks(self) -> bool:
        return self.batch is None

    def over_slots(
        self, convolve: Callable[[Tensor], Tensor], states: Float[Tensor, "inputs width tokens"]
    ) -> Float[Tensor, "inputs width tokens"]:
        """Convolve over slots; slots without a token hold zeros, as masked padding does."""
        batch = self.batch
        if batch is None:
            return convolve(states)
        unpacked = batch.unpack(states.transpose(1, 2)) * batch.attention_mask[..., None]
        spread = unpacked.new_zeros(len(unpacked), states.shape[1], int(batch.columns[-1]) + 1)
        spread = torch.index_copy(spread, -1, batch.columns, unpacked.transpose(1, 2))
        # On a GPU cuDNN convolves in TF32 by default; matrix products are float32.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            convolved = convolve(spread)
        return batch.pack(convolved[..., batch.columns].transpose(1, 2)).transpose(1, 2)

    def distances(self, tokens: Float[Tensor, "batch tokens *width"]) -> Int[Tensor, "1 m m"]:
        """Return the slot of column i of the current pass minus that of column j, at [0, i, j]."""
        if self.batch is None:
            slots = torch.arange(tokens.shape[1], device=tokens.device)
        else:
            slots = self.batch.columns
        return (slots[:, None] - slots)[None]

    def token_slots(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        causal: bool,
    ) -> TokenSlots:
        """Return the slots of queries and keys; they are kept for the pass, because reading the
        mask makes a GPU wait.
        """
        size = (query.shape[-2], key.shape[-2], query.device)
        if size in self.slots_by_size:
            return self.slots_by_size[size]
        if self.batch is not None:
            slots = packed_slots(self.batch.columns[None], self.batch.attention_mask, causal)
        else:
            slots = padded_slots(
                query,
                key,
                mask,
                position_ids,
                causal,
                seen_real=self.seen_real,
                before=self.tokens_before,
            )
        self.slots_by_size[size] = slots
        return slots

    @contextmanager
    def ruled(self, rules: Mapping[int, Rule]) -> Iterator[None]:
        """Add a rule to each of some layers while the block runs. To an added rule, a head's own
        output is what the rules of outer blocks make of it.
        """
        outer = self.rules
        inner = {layer: (*outer.get(layer, ()), rule) for layer, rule in rules.items()}
        self.rules = {**outer, **inner}
        try:
            yield
        finally:
            self.rules = outer


def split_heads(
    states: Float[Tensor, "batch n heads_width"], head_width: int
) -> Float[Tensor, "batch heads n width"]:
    return states.unflatten(-1, (-1, head_width)).transpose(1, 2)


_WITHOUT_EFFECT = {
    "is_causal",
    "cache_position",
    "token_type_ids",
    "mm_token_type_ids",
    "deterministic",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "use_cache",
    "num_items_in_batch",
    "logits_to_keep",
}
"""Arguments of attention functions that do not change attention: the mask already includes their
effect, or they choose what the model returns or how it computes the same numbers.
"""
_LEAST_VISIBLE = -9e3
"""An additive mask hides a key where its entry is lower. Masks written by hand hold -10,000, which
bfloat16 rounds to -9,984.
"""


def visible(mask: Tensor) -> Bool[Tensor, "..."]:
    """Return where a mask, boolean or additive, lets queries see keys."""
    return mask if mask.dtype == torch.bool else mask > _LEAST_VISIBLE


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
    position_bias: Float[Tensor, "#batch heads m_queries m_keys"] | None = None,
    s_aux: Float[Tensor, " heads"] | None = None,
    score_bias: ScoreBias | None = None,
    **further: object,
) -> tuple[
    Float[Tensor, "batch queries heads value_width"],
    Float[Tensor, "batch heads queries keys"] | None,
]:
    """Compute the outputs of a layer's heads, for packed tokens in one row or for padded tokens.

    Arguments are those of transformers' attention functions, where ``position_bias`` is T5's and
    ``s_aux`` are learned sinks; ``score_bias`` is a bias that depends on queries and keys.

    Returns:
        The outputs, and the attention matrices if the pass returns them.

    Raises:
        EncoderError: The module passes another argument, which may change attention.
    """
    for name, argument in further.items():
        if argument is not None and name not in _WITHOUT_EFFECT:
            raise EncoderError(
                f"{type(module).__name__} passes its attention {name} besides queries, keys and "
                "values, which would be lost: its heads cannot be replaced"
            )
    routed = hasattr(module, "papa_dispatch")
    dispatch: Dispatch = getattr(module, "papa_dispatch", Dispatch([module], query.shape[1]))
    causal = bool(getattr(module, "is_causal", False))
    batch = dispatch.batch
    dependent: Heads | None = None
    if batch is None:
        mask, bias = _mask_and_bias(attention_mask, position_bias, query.dtype)
        if score_bias is not None:
            scores = score_bias(query, key)
            if scores is not None:
                bias = scores if bias is None else bias + scores
        # Heads of a group share their keys and values.
        group_size = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(group_size, dim=1)
        value = value.repeat_interleave(group_size, dim=1)
    else:
        dependent = dispatch.dependent_heads(module)
        mask = _packed_mask(dispatch, batch, query, sliding_window)
        value = batch.unpack(value)
        query, key, bias = _unpacked(
            dispatch, batch, dependent, query, key, position_bias, score_bias
        )
    if routed:
        slots = dispatch.token_slots(query, key, mask, position_ids, causal)
    else:
        slots = no_slots(query, key)
    attention = LayerAttention(
        query=query,
        key=key,
        value=value,
        mask=mask,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        slots=slots,
        bias=bias,
        sinks=s_aux,
        softcap=softcap,
        dropout=dropout,
        dependent=dependent,
        rules=dispatch.rules.get(dispatch.layer(module), ()),
        call=dispatch.calls[module] // len(dispatch.layers_of(module)),
        texts=dispatch.texts if batch is None else None,
        batch=batch,
    )
    dispatch.calls[module] += 1
    dispatch.reached = True
    output = attention.output(attention.all_heads).to(value.dtype)
    if batch is not None:
        output = batch.pack(output)
    matrices = attention.matrices() if dispatch.returns_matrices and batch is None else None
    return output.transpose(1, 2).contiguous(), matrices


def _unpacked(
    dispatch: Dispatch,
    batch: MicroBatch,
    dependent: Heads | None,
    query: Tensor,
    key: Tensor,
    position_bias: Tensor | None,
    score_bias: ScoreBias | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Unpack queries and keys to one row for each text, and compute what is added to their scores;
    all of the ``dependent`` heads alone (None: every head).
    """
    heads = tuple(range(dispatch.heads)) if dependent is None else dependent
    if query.shape[1] == dispatch.heads:
        # A layer with one map for queries, keys and values computes those of all heads.
        query = states_of_heads(query, heads)
        key = states_of_heads(key, heads)
    query = batch.unpack(query)
    key = batch.unpack(key)
    if not heads:  # Queries and keys are placeholders.
        return query, key, None
    bias = position_bias if score_bias is None else score_bias(query, key)
    if bias is not None and bias.shape[1] == dispatch.heads:
        bias = states_of_heads(bias, heads)
    return query, key, bias


def _mask_and_bias(
    mask: Tensor | None, position_bias: Tensor | None, dtype: torch.dtype
) -> tuple[Bool[Tensor, "#batch #heads #queries keys"] | None, Tensor | None]:
    """Return which keys a mask of padded tokens lets queries attend to (None: all), and what the
    mask and ``position_bias`` together add to scores.
    """
    if mask is None:
        return None, position_bias
    if mask.dtype == torch.bool:
        lowest = torch.finfo(dtype).min
        added = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, lowest)
    else:
        added = mask
    return visible(mask), added if position_bias is None else added + position_bias


def _packed_mask(
    dispatch: Dispatch, batch: MicroBatch, query: Tensor, sliding_window: int | None
) -> Bool[Tensor, "#batch 1 #m m"] | None:
    """Return which keys packed tokens attend to: those of their text, within the sliding window if
    there is one. None: all.
    """
    mask = real_keys(batch)
    if sliding_window is None:
        return mask
    distances = dispatch.distances(query[0])
    near = (distances.abs() < sliding_window)[:, None]
    if mask is None:
        return near
    # Padding attends to itself: the softmax of a row without keys may be NaN.
    return near & mask | (distances == 0)


PACKED = "papa"
PADDED = "papa_padded"
AttentionInterface.register(PACKED, attend)
AttentionInterface.register(PADDED, attend)
# No mask is built for packed tokens: it would have an entry for each pair of the batch's tokens.
AttentionMaskInterface.register(PACKED, lambda *_, **__: None)
AttentionMaskInterface.register(PADDED, eager_mask)
