"""DeBERTa's second and third version: relative positions in logarithmic buckets, and in v2-xlarge a convolution."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.encoders.disentangled import Projections, count_slots, model_inputs, route_disentangled
from papa.encoders.dispatch import Dispatch
from papa.encoders.family import Family
from papa.encoders.routing import batch_at_hand


def _route(module: Any, dispatch: Dispatch) -> None:
    kinds, shared = module.pos_att_type, module.share_att_key
    projections = Projections(
        query="query_proj",
        key="key_proj",
        value="value_proj",
        position_key=("key_proj" if shared else "pos_key_proj") if "c2p" in kinds else None,
        position_query=("query_proj" if shared else "pos_query_proj") if "p2c" in kinds else None,
        terms=1 + ("c2p" in kinds) + ("p2c" in kinds),
    )
    route_disentangled(module, dispatch, projections)


def _prepare(model: Any, dispatch: Dispatch) -> None:
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
        encoder.conv.conv = SlotConvolution(encoder.conv.conv, dispatch)


class SlotConvolution(nn.Module):
    """A convolution over slots: columns are put at their slots, and slots that no input uses hold zeros.

    With padding those slots hold zeros too, because the mask has cleared them.
    """

    def __init__(self, convolution: nn.Conv1d, dispatch: Dispatch) -> None:
        super().__init__()
        self.convolution = convolution
        self.dispatch = dispatch

    def forward(self, states: Float[Tensor, "1 width tokens"]) -> Float[Tensor, "1 width tokens"]:
        batch = batch_at_hand(self.dispatch)
        unpacked = batch.unpack(states.transpose(1, 2)) * batch.attention_mask[..., None]
        spread = unpacked.new_zeros(len(unpacked), states.shape[1], int(batch.slots[-1]) + 1)
        spread = torch.index_copy(spread, -1, batch.slots, unpacked.transpose(1, 2))
        return batch.pack(self.convolution(spread)[..., batch.slots].transpose(1, 2)).transpose(1, 2)


def _attentions(model: Any) -> list[nn.Module]:
    return [layer.attention.self for layer in model.encoder.layer]


DEBERTA_V2 = Family(
    name="DeBERTa v2/v3",
    model_types=("deberta-v2",),
    attentions=_attentions,
    projections=("query_proj", "key_proj", "pos_key_proj", "pos_query_proj"),
    model_inputs=model_inputs,
    route=_route,
    prepare=_prepare,
    positions=lambda config: config.max_position_embeddings,
    note="relative positions are buckets of distances of slots; so is the convolution of v2-xlarge and v2-xxlarge",
    attention_implementation="eager",
)
