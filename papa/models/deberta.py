"""DeBERTa: content and relative position are scored separately (He et al., 2021).

The score of query i and key j is (q_i·k_j + q_i·P[r] + k_j·R[r]) · scaling, where r is the relative
position of their slots and P, R are projections of the relative positions' embeddings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from papa.models.dispatch import Attend, AttentionPass, ScoreBias, split_heads
from papa.models.layer import at_least_single


class Relative(NamedTuple):
    """What the layers of one pass are handed.

    Attributes:
        attend: what computes their attention.
        rows: of the relative embeddings that the pass needs; None in a model without any.
        pairs: which of the rows each pair of tokens has.
    """

    attend: Attend
    rows: Int[Tensor, " relative"] | None = None
    pairs: Int[Tensor, "#batch m m"] | None = None


def _attend(
    module: Any,
    hidden_states: Float[Tensor, "batch tokens width"],
    attention_mask: Tensor,
    *_: object,
    relative_pos: Relative,
    rel_embeddings: Float[Tensor, "all_relative width"] | None = None,
    **__: object,
) -> tuple[Float[Tensor, "batch tokens width"], Tensor | None]:
    """Return the outputs and matrices of a layer's attention; replaces the forward method of its
    attention module.
    """
    head_width: int = module.attention_head_size
    kinds = module.pos_att_type
    fused = getattr(module, "in_proj", None)
    # ``position_maps``: the names of the maps that project relative positions to P and R.
    if fused is not None:
        by_head = fused(hidden_states).unflatten(-1, (-1, 3, head_width))
        query, key, value = by_head.permute(3, 0, 2, 1, 4)
        # The first version has no bias on keys.
        query = query + split_heads(module.q_bias[None, None].to(query.dtype), head_width)
        value = value + split_heads(module.v_bias[None, None].to(value.dtype), head_width)
        terms = 1 + len(kinds)
        position_maps = ["pos_proj", "pos_q_proj"]
    else:
        query, key, value = (
            split_heads(linear(hidden_states), head_width)
            for linear in (module.query_proj, module.key_proj, module.value_proj)
        )
        terms = 1 + ("c2p" in kinds) + ("p2c" in kinds)
        position_maps = ["pos_key_proj", "pos_query_proj"]
        if module.share_att_key:
            position_maps = ["key_proj", "query_proj"]
    scaling = (head_width * terms) ** -0.5
    score_bias: ScoreBias | None = None
    rows = relative_pos.rows
    pairs = relative_pos.pairs
    if rows is not None and pairs is not None and rel_embeddings is not None:
        embeddings = module.pos_dropout(rel_embeddings[rows])[None]

        def read(states: Tensor, position_map: str, pairs: Int[Tensor, "#batch m m"]) -> Tensor:
            """Compute the scores against every relative position once, and read them at each
            pair.
            """
            positions = split_heads(getattr(module, position_map)(embeddings), head_width)
            # A bias is added to scores that are scaled already.
            states = at_least_single(states) * scaling
            by_position = states @ positions.to(states.dtype).transpose(-1, -2)
            return by_position.gather(-1, pairs[:, None].expand(*states.shape[:2], -1, -1))

        def bias(query: Tensor, key: Tensor) -> Float[Tensor, "batch dependent m m"] | None:
            scores = read(query, position_maps[0], pairs) if "c2p" in kinds else None
            if "p2c" in kinds:
                # Rows are keys here: pairs are read as [j, i] and turned.
                by_key = read(key, position_maps[1], pairs.mT).transpose(-1, -2)
                scores = by_key if scores is None else scores + by_key
            return scores

        score_bias = bias
    output, matrices = relative_pos.attend(
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


def prepare(model: Any, current: AttentionPass) -> None:
    """Hand over attention, and count slots; masks of all pairs are made only where they are
    read.
    """
    encoder = model.encoder
    encoder.get_attention_mask = partial(_mask, current, encoder.get_attention_mask)
    encoder.get_rel_pos = partial(_relative, current, encoder)
    for layer in encoder.layer:
        layer.attention.self.forward = partial(_attend, layer.attention.self)
    if getattr(encoder, "conv", None) is not None:
        convolution = encoder.conv.conv
        convolution.forward = partial(current.over_slots, convolution.forward)


def _mask(current: AttentionPass, of_pairs: Callable[[Tensor], Tensor], mask: Tensor) -> Tensor:
    return of_pairs(mask) if current.reads_masks else mask


def _relative(
    current: AttentionPass, encoder: Any, tokens: Tensor, *_: object, **__: object
) -> Relative:
    attend = current.attention_function()
    if not encoder.relative_attention:
        return Relative(attend)
    distances = current.distances(tokens)
    span: int = encoder.max_relative_positions
    buckets: int = getattr(encoder, "position_buckets", 0)
    if buckets > 0:
        distances = make_log_bucket_position(distances, buckets, span).long()
        span = buckets
    rows = (distances + span).clamp(0, 2 * span - 1)
    if torch.compiler.is_compiling():
        # The shapes of a graph do not depend on numbers: it has all rows.
        return Relative(attend, torch.arange(2 * span, device=rows.device), rows)
    return Relative(attend, *torch.unique(rows, return_inverse=True))
