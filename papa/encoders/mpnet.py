"""MPNet: absolute positions count real tokens; a bias by relative position joins the scores."""

from __future__ import annotations

from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from papa.encoders.dispatch import Dispatch, attend
from papa.encoders.family import Family, split_heads


def _attend(
    module: Any,
    hidden_states: Float[Tensor, "batch tokens width"],
    attention_mask: Tensor | None = None,
    position_bias: Float[Tensor, "1 heads m m"] | None = None,
    **_: object,
) -> tuple[Float[Tensor, "batch tokens width"]]:
    width: int = module.attention_head_size
    query, key, value = (
        split_heads(linear(hidden_states), width) for linear in (module.q, module.k, module.v)
    )
    told: Any = {"dropout": module.dropout.p if module.training else 0.0}
    told["bias"] = lambda query, key: position_bias
    return (module.o(attend(module, query, key, value, attention_mask, **told)[0].flatten(2)),)


def _prepare(model: Any, dispatch: Dispatch) -> None:
    """Relative positions are distances in the padded sequence, of slots: one bias serves all."""
    encoder = model.encoder

    def compute_position_bias(tokens: Tensor) -> Float[Tensor, "1 heads m m"]:
        # transformers counts from the query to the key, a dispatch from the key to the query.
        buckets = encoder.relative_position_bucket(-dispatch.distances(tokens))
        return encoder.relative_attention_bias(buckets).permute(2, 0, 1)[None]

    encoder.compute_position_bias = compute_position_bias
    for layer in encoder.layer:
        layer.attention.attn.forward = partial(_attend, layer.attention.attn)


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
    prepare=_prepare,
    note="absolute positions count real tokens, relative ones are distances of slots",
)
