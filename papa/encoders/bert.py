"""BERT, RoBERTa, ELECTRA and their kin, DistilBERT and ALBERT: stacked layers behind the attention
interface.

DistilBERT has no segments. ALBERT's layers share their weights: one attention module is called once
for each layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig

from papa.corpora.batches import MicroBatch
from papa.encoders.dispatch import route_interface
from papa.encoders.family import Family, every_token, positions_are_slots, positions_count_tokens


def inputs_by_slot(batch: MicroBatch, config: PreTrainedConfig) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "token_type_ids": batch.token_type_ids[None],
        "position_ids": positions_are_slots(batch),
    }


def _inputs_by_count(batch: MicroBatch, config: PreTrainedConfig) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "token_type_ids": batch.token_type_ids[None],
        "position_ids": positions_count_tokens(batch, config.pad_token_id),
    }


BERT = Family(
    name="BERT",
    model_types=("bert",),
    projections=("query", "key"),
    model_inputs=inputs_by_slot,
    route=route_interface,
    positions=lambda config: config.max_position_embeddings,
    note="absolute positions are slots",
)

ELECTRA = replace(BERT, name="ELECTRA", model_types=("electra",))


def _refuse_unpadded(config: PreTrainedConfig) -> str | None:
    if isinstance(config.pad_token_id, int):
        return None
    return "its config.json names no pad_token_id, after which its positions count: add it"


ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    projections=("query", "key"),
    model_inputs=_inputs_by_count,
    route=route_interface,
    # Positions begin after that of padding.
    positions=lambda config: config.max_position_embeddings - config.pad_token_id - 1,
    refuse=_refuse_unpadded,
    note="absolute positions count real tokens, as with padding",
)


def _distilbert_inputs(batch: MicroBatch, config: PreTrainedConfig) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "position_ids": positions_are_slots(batch),
    }


DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    attentions=lambda model: [layer.attention for layer in model.transformer.layer],
    output_maps=lambda model: [layer.attention.out_lin for layer in model.transformer.layer],
    attention_norms=lambda model: [layer.sa_layer_norm for layer in model.transformer.layer],
    projections=("q_lin", "k_lin"),
    value="v_lin",
    model_inputs=_distilbert_inputs,
    route=route_interface,
    positions=lambda config: config.max_position_embeddings,
    note="absolute positions are slots; it knows no segments",
)


def _albert_attentions(model: Any) -> list[Any]:
    groups, layers = model.encoder.albert_layer_groups, model.config.num_hidden_layers
    of_groups = [group.albert_layers[0].attention for group in groups]
    # As transformers spreads layers over groups, rounding included.
    return [of_groups[int(layer / (layers / len(groups)))] for layer in range(layers)]


def _refuse(config: PreTrainedConfig) -> str | None:
    if config.inner_group_num != 1:
        return (
            f"inner_group_num is {config.inner_group_num}, so a layer attends more than once: only "
            "1 is supported"
        )
    return None


ALBERT = Family(
    name="ALBERT",
    model_types=("albert",),
    attentions=_albert_attentions,
    output_maps=lambda model: [attention.dense for attention in _albert_attentions(model)],
    attention_norms=lambda model: [attention.LayerNorm for attention in _albert_attentions(model)],
    projections=("query", "key"),
    model_inputs=inputs_by_slot,
    route=route_interface,
    refuse=_refuse,
    positions=lambda config: config.max_position_embeddings,
    note=(
        "absolute positions are slots; layers share weights but each has constant matrices of its "
        "own"
    ),
)
