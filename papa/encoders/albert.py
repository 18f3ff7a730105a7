"""ALBERT: layers share their weights, so one attention module is called once for each of its layers."""

from __future__ import annotations

from typing import Any

from torch import nn

from papa.encoders.bert import inputs_by_slot
from papa.encoders.dispatch import route_interface
from papa.encoders.family import Family


def _attentions(model: Any) -> list[nn.Module]:
    groups, layers = model.encoder.albert_layer_groups, model.config.num_hidden_layers
    of_groups = [group.albert_layers[0].attention for group in groups]
    return [of_groups[int(layer / (layers / len(groups)))] for layer in range(layers)]


def _refuse(config: Any) -> str | None:
    if config.inner_group_num != 1:
        return f"inner_group_num is {config.inner_group_num}, so a layer attends more than once: only 1 is supported"
    return None


ALBERT = Family(
    name="ALBERT",
    model_types=("albert",),
    attentions=_attentions,
    projections=("query", "key"),
    model_inputs=inputs_by_slot,
    route=route_interface,
    refuse=_refuse,
    positions=lambda config: config.max_position_embeddings,
    note="absolute positions are slots; layers share weights but each has constant matrices of its own",
)
