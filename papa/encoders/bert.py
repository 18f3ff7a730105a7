"""BERT, RoBERTa, ELECTRA and their kin: stacked layers with ``attention.self`` behind the attention interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from papa.corpora.batches import CompactBatch
from papa.encoders.dispatch import route_interface
from papa.encoders.family import Family, every_token, positions_are_slots, positions_count_tokens


def _attentions(model: nn.Module) -> Sequence[nn.Module]:
    return [layer.attention.self for layer in model.encoder.layer]  # type: ignore[union-attr]


def inputs_by_slot(batch: CompactBatch, config: Any) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "token_type_ids": batch.token_type_ids[None],
        "position_ids": positions_are_slots(batch),
    }


def _inputs_by_count(batch: CompactBatch, config: Any) -> dict[str, Tensor]:
    return {
        "input_ids": batch.input_ids[None],
        "attention_mask": every_token(batch),
        "token_type_ids": batch.token_type_ids[None],
        "position_ids": positions_count_tokens(batch, config.pad_token_id),
    }


BERT = Family(
    name="BERT",
    model_types=("bert",),
    attentions=_attentions,
    projections=("query", "key"),
    model_inputs=inputs_by_slot,
    route=route_interface,
    positions=lambda config: config.max_position_embeddings,
    note="absolute positions are slots",
)

ELECTRA = replace(BERT, name="ELECTRA", model_types=("electra",))

ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    attentions=_attentions,
    projections=("query", "key"),
    model_inputs=_inputs_by_count,
    route=route_interface,
    positions=lambda config: config.max_position_embeddings - config.pad_token_id - 1,
    note="absolute positions count real tokens, as with padding",
)
