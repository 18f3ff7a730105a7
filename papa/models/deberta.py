"""DeBERTa: content and relative position are scored separately (He et al., 2021).

The score of query i and key j is (q_i·k_j + q_i·P[r] + k_j·R[r]) · scaling, where r is the relative
position of their slots and P, R are projections of the relative positions' embeddings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from papa.models.dispatch import Dispatch, ScoreBias, attend, split_heads
from papa.models.layer import at_least_single

Relative = tuple[Int[Tensor, " relative"], Int[Tensor, "m m"]]
"""Rows of the relative embeddings, ascending, and which of them each pair of columns has."""


def _attend(
    module: Any,
    hidden_states: Float[Tensor, "batch tokens width"],
    attention_mask: Tensor,
    *_: object,
    relative_pos: Relative | None = None,
    rel_embeddings: Float[Tensor, "all_relative width"] | None = None,
    **__: object,
) -> tuple[Float[Tensor, "batch tokens width"], Tensor | None]:
    head_width: int = module.attention_head_size
    kinds = module.pos_att_type
    fused = getattr(module, "in_proj", None)
    if fused is not None:
        by_head = fused(hidden_states).unflatten(-1, (-1, 3, head_width))
        query, key, value = by_head.permute(3, 0, 2, 1, 4)
        # The first version has no bias on keys.
        query = query + split_heads(module.q_bias[None, None].to(query.dtype), head_width)
        value = value + split_heads(module.v_bias[None, None].to(value.dtype), head_width)
        terms = 1 + len(kinds)
        names = ("pos_proj", "pos_q_proj")
    else:
        query, key, value = (
            split_heads(linear(hidden_states), head_width)
            for linear in (module.query_proj, module.key_proj, module.value_proj)
        )
        terms = 1 + ("c2p" in kinds) + ("p2c" in kinds)
        are_shared = module.share_att_key
        names = ("key_proj", "query_proj") if are_shared else ("pos_key_proj", "pos_query_proj")
    scaling = (head_width * terms) ** -0.5
    score_bias: ScoreBias | None = None
    if relative_pos is not None and rel_embeddings is not None:
        rows, pairs = relative_pos
        embeddings = module.pos_dropout(rel_embeddings[rows])[None]

        def read(states: Tensor, name: str, pairs: Int[Tensor, "m m"]) -> Tensor:
            """Compute the scores against every relative position once, and read them at each
            pair.
            """
            positions = split_heads(getattr(module, name)(embeddings), head_width)
            # A bias is added to scores that are scaled already.
            states = at_least_single(states) * scaling
            by_position = states @ positions.to(states.dtype).transpose(-1, -2)
            return by_position.gather(-1, pairs.expand(*states.shape[:2], *pairs.shape))

        def bias(query: Tensor, key: Tensor) -> Float[Tensor, "batch dependent m m"] | None:
            scores = read(query, names[0], pairs) if "c2p" in kinds else None
            if "p2c" in kinds:
                # Rows are keys here: pairs are read as [j, i] and turned.
                by_key = read(key, names[1], pairs.T).transpose(-1, -2)
                scores = by_key if scores is None else scores + by_key
            return scores

        score_bias = bias
    output, matrices = attend(
        module,
        query,
        key,
        value,
        attention_mask.bool(),
        scaling,
        dropout=module.dropout.p if module.training else 0.0,
        score_bias=score_bias,
    )
    return output.flatten(2), matrices


def prepare(model: Any, dispatch: Dispatch) -> None:
    """Hand over attention, and count slots; packed tokens have no mask, a square of them all."""
    encoder = model.encoder
    mask_of_pairs = encoder.get_attention_mask
    furthest: int = getattr(encoder, "max_relative_positions", 0)
    buckets: int = getattr(encoder, "position_buckets", 0)

    def relative(tokens: Tensor, *_: object, **__: object) -> Relative | None:
        if not encoder.relative_attention:
            return None
        distances = dispatch.distances(tokens)
        span = furthest
        if buckets > 0:
            distances = make_log_bucket_position(distances, buckets, furthest).long()
            span = buckets
        rows = (distances + span).clamp(0, 2 * span - 1)
        return torch.unique(rows, return_inverse=True)

    encoder.get_attention_mask = lambda mask: (
        mask_of_pairs(mask) if dispatch.batch is None else mask
    )
    encoder.get_rel_pos = relative
    for layer in encoder.layer:
        layer.attention.self.forward = partial(_attend, layer.attention.self)
    if getattr(encoder, "conv", None) is not None:
        convolution = encoder.conv.conv
        convolution.forward = partial(_over_slots, dispatch, convolution.forward)


def _over_slots(
    dispatch: Dispatch,
    convolve: Callable[[Tensor], Tensor],
    states: Float[Tensor, "inputs width tokens"],
) -> Float[Tensor, "inputs width tokens"]:
    """Return a convolution over slots: those that no input uses hold zeros, as masked padding
    does.
    """
    batch = dispatch.batch
    if batch is None:
        return convolve(states)
    unpacked = batch.unpack(states.transpose(1, 2)) * batch.attention_mask[..., None]
    spread = unpacked.new_zeros(len(unpacked), states.shape[1], int(batch.columns[-1]) + 1)
    spread = torch.index_copy(spread, -1, batch.columns, unpacked.transpose(1, 2))
    # PyTorch rounds what convolutions multiply on a GPU, and not what linear maps do.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        convolved = convolve(spread)
    return batch.pack(convolved[..., batch.columns].transpose(1, 2)).transpose(1, 2)
