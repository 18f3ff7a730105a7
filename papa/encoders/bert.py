"""Families whose layers call the attention interface: BERT, RoBERTa, ELECTRA and their kin,
DistilBERT, ALBERT, whose layers share their weights, and ModernBERT, some of whose layers see a
window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformers import PreTrainedConfig

from papa.encoders.family import Family

BERT = Family(name="BERT", model_types=("bert",), note="absolute positions are slots")

ELECTRA = replace(BERT, name="ELECTRA", model_types=("electra",))


def _refuse_unpadded(config: PreTrainedConfig) -> str | None:
    if isinstance(config.pad_token_id, int):
        return None
    return "its config.json names no pad_token_id, after which its positions count: add it"


ROBERTA = Family(
    name="RoBERTa",
    model_types=("roberta", "xlm-roberta", "camembert"),
    padding=lambda config: config.pad_token_id,
    refuse=_refuse_unpadded,
    note="absolute positions count real tokens, as with padding",
)

DISTILBERT = Family(
    name="DistilBERT",
    model_types=("distilbert",),
    attentions=lambda model: [layer.attention for layer in model.transformer.layer],
    output_maps=lambda model: [layer.attention.out_lin for layer in model.transformer.layer],
    attention_norms=lambda model: [layer.sa_layer_norm for layer in model.transformer.layer],
    projections=("q_lin", "k_lin"),
    value="v_lin",
    segments=False,
    note="absolute positions are slots; it knows no segments",
)


def _albert_attentions(model: Any) -> list[Any]:
    groups, layers = model.encoder.albert_layer_groups, model.config.num_hidden_layers
    of_groups = [group.albert_layers[0].attention for group in groups]
    # As transformers spreads layers over groups, rounding included.
    return [of_groups[int(layer / (layers / len(groups)))] for layer in range(layers)]


def _refuse_inner_groups(config: PreTrainedConfig) -> str | None:
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
    refuse=_refuse_inner_groups,
    note="absolute positions are slots; layers share weights but have matrices of their own",
)

MODERNBERT = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    attentions=lambda model: [layer.attn for layer in model.layers],
    output_maps=lambda model: [layer.attn.Wo for layer in model.layers],
    attention_norms=None,
    projections=("Wqkv",),
    rotary=True,
    segments=False,
    note="rotary positions and local windows go by slots; outside a window the average is 0",
)
