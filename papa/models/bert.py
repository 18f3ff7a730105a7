"""Families whose layers call the attention interface: BERT, RoBERTa, ELECTRA and their kin,
DistilBERT, ALBERT, whose layers share their weights, and ModernBERT, some of whose layers see a
window; and MPNet, whose layers are routed here, as a bias by relative position joins the scores.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedConfig

from papa.models.dispatch import Dispatch, attend
from papa.models.family import Family, split_heads

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


def _attend_mpnet(
    module: Any,
    hidden_states: Float[Tensor, "batch tokens width"],
    attention_mask: Tensor | None = None,
    position_bias: Float[Tensor, "1 heads m m"] | None = None,
    **_: object,
) -> tuple[Float[Tensor, "batch tokens width"], Tensor | None]:
    width: int = module.attention_head_size
    query, key, value = (
        split_heads(linear(hidden_states), width) for linear in (module.q, module.k, module.v)
    )
    told: Any = {"dropout": module.dropout.p if module.training else 0.0}
    told["bias"] = lambda query, key: position_bias
    output, matrices = attend(module, query, key, value, attention_mask, **told)
    return module.o(output.flatten(2)), matrices


def _prepare_mpnet(model: Any, dispatch: Dispatch) -> None:
    """Relative positions are distances in the padded sequence, of slots: one bias serves all."""
    encoder = model.encoder

    def compute_position_bias(tokens: Tensor) -> Float[Tensor, "1 heads m m"]:
        # transformers counts from the query to the key, a dispatch from the key to the query.
        buckets = encoder.relative_position_bucket(-dispatch.distances(tokens))
        return encoder.relative_attention_bias(buckets).permute(2, 0, 1)[None]

    encoder.compute_position_bias = compute_position_bias
    for layer in encoder.layer:
        layer.attention.attn.forward = partial(_attend_mpnet, layer.attention.attn)


MPNET = Family(
    name="MPNet",
    model_types=("mpnet",),
    attentions=lambda model: [layer.attention.attn for layer in model.encoder.layer],
    output_maps=lambda model: [layer.attention.attn.o for layer in model.encoder.layer],
    attention_norms=lambda model: [layer.attention.LayerNorm for layer in model.encoder.layer],
    projections=("q", "k"),
    value="v",
    segments=False,
    # Fixed in transformers' MPNet, whatever the configuration says.
    padding=lambda config: 1,
    prepare=_prepare_mpnet,
    note="absolute positions count real tokens, relative ones are distances of slots",
)
