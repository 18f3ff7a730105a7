"""ModernBERT: rotary positions, and layers in which a token sees only a window around it."""

from __future__ import annotations

from papa.encoders.family import Family

MODERNBERT = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    attentions=lambda model: [layer.attn for layer in model.layers],
    output_maps=lambda model: [layer.attn.Wo for layer in model.layers],
    attention_norms=None,
    projections=("Wqkv",),
    rotary=True,
    segments=False,
    note=(
        "rotary positions and local windows go by slots; in local layers the average is 0 outside "
        "the window"
    ),
)
