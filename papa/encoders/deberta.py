"""DeBERTa: disentangled attention (He et al., 2021), in which content and relative position are
scored separately.

The score of query i and key j is (q_i·k_j + q_i·P[r] + k_j·R[r]) · scaling, where r is the relative
position of their slots and P, R are projections of the relative positions' embeddings. All inputs
of a micro-batch have the same columns, so r is one matrix for the whole batch, and only the
relative positions that occur are projected.

The first version has queries, keys and values in one projection and cuts relative positions off at
a distance. The second and third put them in logarithmic buckets, and v2-xlarge adds a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedConfig

from papa.encoders.dispatch import Dispatch, at_least_single, attend
from papa.encoders.family import Family, split_heads


def _attend(
    module: Any,
    hidden_states: Float[Tensor, "1 tokens width"],
    *_: object,
    relative_pos: Int[Tensor, "m m"] | None = None,
    rel_embeddings: Float[Tensor, "relative width"] | None = None,
    **__: object,
) -> tuple[Float[Tensor, "1 tokens width"], None]:
    head_width, kinds = module.attention_head_size, module.pos_att_type
    if fused := getattr(module, "in_proj", None):
        by_head = fused(hidden_states).unflatten(-1, (-1, 3, head_width))
        query, key, value = by_head.permute(3, 0, 2, 1, 4)
        # The first version has no bias on keys.
        query = query + split_heads(module.q_bias[None, None].to(query.dtype), head_width)
        value = value + split_heads(module.v_bias[None, None].to(value.dtype), head_width)
        terms = 1 + len(kinds)
    else:
        query, key, value = (
            split_heads(linear(hidden_states), head_width)
            for linear in (module.query_proj, module.key_proj, module.value_proj)
        )
        terms = 1 + ("c2p" in kinds) + ("p2c" in kinds)
    scaling = (head_width * terms) ** -0.5
    bias = None
    if relative_pos is not None and rel_embeddings is not None:
        embeddings = module.pos_dropout(rel_embeddings)[None]
        bias = partial(_position_scores, module, scaling, relative_pos, embeddings)
    dropout = module.dropout.p if module.training else 0.0
    output = attend(module, query, key, value, scaling=scaling, bias=bias, dropout=dropout)
    return output.flatten(2), None


def _position_scores(
    module: Any,
    scaling: float,
    relative: Int[Tensor, "m m"],
    embeddings: Float[Tensor, "1 relative width"],
    query: Float[Tensor, "batch dependent m head_width"],
    key: Float[Tensor, "batch dependent m head_width"],
) -> Float[Tensor, "batch dependent m m"] | None:
    """Both terms with positions: against every relative one once, then read at each pair."""
    if hasattr(module, "in_proj"):
        names = ("pos_proj", "pos_q_proj")
    else:
        shared = module.share_att_key
        names = ("key_proj", "query_proj") if shared else ("pos_key_proj", "pos_query_proj")

    def read(states: Tensor, name: str, pairs: Int[Tensor, "m m"]) -> Tensor:
        positions = split_heads(getattr(module, name)(embeddings), query.shape[-1])
        # A bias is added to scores that are scaled already.
        states = at_least_single(states) * scaling
        by_position = states @ positions.to(states.dtype).transpose(-1, -2)
        return by_position.gather(-1, pairs.expand(*query.shape[:2], *pairs.shape))

    scores = read(query, names[0], relative) if "c2p" in module.pos_att_type else None
    if "p2c" in module.pos_att_type:
        # Rows are keys here: pairs are read as [j, i] and turned.
        by_key = read(key, names[1], relative.T).transpose(-1, -2)
        scores = by_key if scores is None else scores + by_key
    return scores


def count_slots(encoder: Any, dispatch: Dispatch, row: Callable[[Tensor], Tensor]) -> None:
    """Have a DeBERTa encoder's layers hand over their attention, and make its relative positions
    those of slots, where it has some; it builds no mask, which would be a square of all tokens.

    ``row`` is from slot distances to rows of the relative embeddings, of which those that occur in
    the batch are taken, ascending; relative positions then name one of them for each pair of
    columns.
    """
    encoder.get_attention_mask = lambda attention_mask: attention_mask
    if encoder.relative_attention:
        every = encoder.get_rel_embedding

        def occurring() -> tuple[Int[Tensor, " relative"], Int[Tensor, "m m"]]:
            return torch.unique(row(dispatch.slot_distances()), return_inverse=True)

        encoder.get_rel_embedding = lambda: every()[occurring()[0]]
        encoder.get_rel_pos = lambda *_, **__: occurring()[1]
    for layer in encoder.layer:
        layer.attention.self.forward = partial(_attend, layer.attention.self)


def _prepare_v1(model: Any, dispatch: Dispatch) -> None:
    def row(distances: Tensor) -> Tensor:
        furthest = model.encoder.max_relative_positions
        return distances.clamp(-furthest, furthest - 1) + furthest

    count_slots(model.encoder, dispatch, row)


def _refuse(config: PreTrainedConfig) -> str | None:
    if getattr(config, "talking_head", False):
        return (
            "talking heads mix the attention of all heads, so none can be made constant alone: "
            "use a model without"
        )
    return None


DEBERTA = Family(
    name="DeBERTa",
    model_types=("deberta",),
    projections=("in_proj", "pos_proj", "pos_q_proj"),
    prepare=_prepare_v1,
    refuse=_refuse,
    note="relative positions are distances of slots; talking heads are not supported",
)


def _prepare_v2(model: Any, dispatch: Dispatch) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    encoder = model.encoder

    def row(distances: Tensor) -> Tensor:
        buckets, furthest = encoder.position_buckets, encoder.max_relative_positions
        if buckets > 0:
            distances = make_log_bucket_position(distances, buckets, furthest).long()
            furthest = buckets
        return (distances + furthest).clamp(0, 2 * furthest - 1)

    count_slots(encoder, dispatch, row)
    if encoder.conv is not None:
        convolution = encoder.conv.conv
        convolution.forward = partial(_over_slots, dispatch, convolution.forward)


def _over_slots(
    dispatch: Dispatch,
    convolve: Callable[[Tensor], Tensor],
    states: Float[Tensor, "1 width tokens"],
) -> Float[Tensor, "1 width tokens"]:
    """A convolution over slots: columns are put at their slots, and slots that no input uses hold
    zeros, as with padding, where the mask has cleared them.
    """
    batch = dispatch.packed
    unpacked = batch.unpack(states.transpose(1, 2)) * batch.attention_mask[..., None]
    spread = unpacked.new_zeros(len(unpacked), states.shape[1], int(batch.columns[-1]) + 1)
    spread = torch.index_copy(spread, -1, batch.columns, unpacked.transpose(1, 2))
    # PyTorch rounds what convolutions multiply on a GPU, and not what linear maps do.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        convolved = convolve(spread)
    return batch.pack(convolved[..., batch.columns].transpose(1, 2)).transpose(1, 2)


DEBERTA_V2 = Family(
    name="DeBERTa v2/v3",
    model_types=("deberta-v2",),
    projections=("query_proj", "key_proj", "pos_key_proj", "pos_query_proj"),
    value="value_proj",
    prepare=_prepare_v2,
    note=(
        "relative positions are buckets of distances of slots; so is the convolution of v2-xlarge "
        "and v2-xxlarge"
    ),
)
