"""ModernBERT: rotary positions, and layers in which a token sees only a window around it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from papa.encoders.dispatch import Dispatch, InputDependentAttention, split_heads
from papa.encoders.family import Family
from papa.encoders.linear import linear_of

LOCAL = "sliding_attention"


def _route(module: Any, dispatch: Dispatch) -> None:
    """Split the fused projection into queries, keys and values of all heads."""
    weights = module.Wqkv.weight.chunk(3)
    biases = (None, None, None) if module.Wqkv.bias is None else module.Wqkv.bias.chunk(3)
    module.query, module.key, module.value = map(linear_of, weights, biases)
    # Its parts share its memory; left in place, it would be moved to a GPU a second time.
    del module.Wqkv
    module.forward = partial(_attend, module, dispatch)


def _stored(module: Any) -> dict[str, Tensor]:
    maps = module.query, module.key, module.value
    parts = ("weight",) if module.query.bias is None else ("weight", "bias")
    return {f"Wqkv.{part}": torch.cat([getattr(own, part) for own in maps]) for part in parts}


def _attend(
    module: Any,
    dispatch: Dispatch,
    hidden_states: Float[Tensor, "1 tokens width"],
    position_embeddings: tuple[
        Float[Tensor, "1 tokens head_width"], Float[Tensor, "1 tokens head_width"]
    ],
    **_: object,
) -> tuple[Float[Tensor, "1 tokens width"], None]:
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    query, key, value = (
        split_heads(linear(hidden_states), module.head_dim)
        for linear in (module.query, module.key, module.value)
    )
    if dispatch.any_dependent_heads():
        # Where no head needs them, queries and keys are stand-ins without a head to turn.
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    query, key = dispatch.unpack_projected(query, key)
    config: Any = module.config
    local = config.layer_types[module.layer_idx] == LOCAL
    # The configuration counts the window with both its sides.
    mask = window(dispatch, config.local_attention // 2) if local else dispatch.mask
    dropout = module.attention_dropout if module.training else 0.0
    own = InputDependentAttention(query, key, mask, module.head_dim**-0.5, dropout=dropout)
    return module.out_drop(module.Wo(dispatch.attend(own, value).flatten(2))), None


def window(dispatch: Dispatch, reach: int) -> Bool[Tensor, "#batch 1 m m"]:
    """Return the mask of a local layer: real keys at most ``reach`` slots away.

    Every query may look at itself: a column without a token could otherwise have nothing to look
    at, and its softmax would be NaN.
    """
    distances = dispatch.slot_distances()
    near = (distances.abs() <= reach)[None, None]
    itself = distances == 0
    return near if dispatch.mask is None else (near & dispatch.mask) | itself


def _scores_of_means(
    model: Any,
    layer: int,
    query: Float[Tensor, "heads width"],
    key: Float[Tensor, "heads width"],
    slots: int,
) -> Float[Tensor, "heads slots slots"]:
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    kind, positions = model.config.layer_types[layer], torch.arange(slots, device=query.device)
    everywhere = (tensor[None, :, None].expand(1, -1, slots, -1) for tensor in (query, key))
    turned = apply_rotary_pos_emb(*everywhere, *model.rotary_emb(query, positions[None], kind))
    scores: Tensor = torch.matmul(turned[0], turned[1].mT)[0] * query.shape[-1] ** -0.5
    if kind != LOCAL:
        return scores
    far = (positions[:, None] - positions).abs() > model.config.local_attention // 2
    return scores.masked_fill(far, -math.inf)


MODERNBERT = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    attentions=lambda model: [layer.attn for layer in model.layers],
    output_maps=lambda model: [layer.attn.Wo for layer in model.layers],
    attention_norms=None,
    segments=False,
    route=_route,
    scores_of_means=_scores_of_means,
    stored=_stored,
    note=(
        "rotary positions and local windows go by slots; in local layers the average is 0 outside "
        "the window"
    ),
)
