"""DeBERTa's first version: queries, keys and values in one projection, relative positions cut off at a distance."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from papa.encoders.disentangled import Projections, count_slots, model_inputs, route_disentangled
from papa.encoders.dispatch import Dispatch
from papa.encoders.family import Family
from papa.encoders.routing import linear_of


def _route(module: Any, dispatch: Dispatch) -> None:
    """Take the fused projection apart; each head's rows of it are its query, key and value, in this order."""
    heads, head_width = module.num_attention_heads, module.attention_head_size
    fused = module.in_proj.weight.view(heads, 3, head_width, -1)
    query, key, value = (fused[:, part].flatten(0, 1) for part in range(3))
    module.query = linear_of(query, module.q_bias.data)
    module.key = linear_of(key)
    module.value = linear_of(value, module.v_bias.data)
    del module.in_proj, module.q_bias, module.v_bias
    kinds = module.pos_att_type
    projections = Projections(
        query="query",
        key="key",
        value="value",
        position_key="pos_proj" if "c2p" in kinds else None,
        position_query="pos_q_proj" if "p2c" in kinds else None,
        terms=1 + len(kinds),
    )
    route_disentangled(module, dispatch, projections)


def _prepare(model: Any, dispatch: Dispatch) -> None:
    def row(distances: Tensor) -> Tensor:
        furthest = model.encoder.max_relative_positions
        return distances.clamp(-furthest, furthest - 1) + furthest

    count_slots(model.encoder, dispatch, row)


def _refuse(config: Any) -> str | None:
    if getattr(config, "talking_head", False):
        return "talking heads mix the attention of all heads, so none can be made constant alone: use a model without"
    return None


def _attentions(model: Any) -> list[nn.Module]:
    return [layer.attention.self for layer in model.encoder.layer]


DEBERTA = Family(
    name="DeBERTa",
    model_types=("deberta",),
    attentions=_attentions,
    projections=("query", "key", "pos_proj", "pos_q_proj"),
    model_inputs=model_inputs,
    route=_route,
    prepare=_prepare,
    refuse=_refuse,
    positions=lambda config: config.max_position_embeddings,
    note="relative positions are distances of slots; talking heads are not supported",
    attention_implementation="eager",
)
