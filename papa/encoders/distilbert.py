"""DistilBERT: BERT without segments."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import route_interface
from papa.encoders.family import Family, every_token, positions_are_slots


def _attentions(model: Any) -> list[nn.Module]:
    return [layer.attention for layer in model.transformer.layer]


def _model_inputs(batch: CompactBatch, config: Any) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "position_ids": positions_are_slots(batch),
    }


DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    attentions=_attentions,
    projections=("q_lin", "k_lin"),
    model_inputs=_model_inputs,
    route=route_interface,
    positions=lambda config: config.max_position_embeddings,
    note="absolute positions are slots; it knows no segments",
)
