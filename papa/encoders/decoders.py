"""Decoders that studies measure with their own head: those on which ``papa.ablated`` is tested."""

from __future__ import annotations

from typing import Any

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
"""Their ``model_type``."""


def decoder_shape(config: Any) -> dict[str, Any]:
    """What ``EncoderReference`` says of a decoder's shape; heads count by query."""
    return {
        "model_type": config.model_type,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "key_heads": getattr(config, "num_key_value_heads", config.num_attention_heads),
        "width": config.hidden_size,
        "positions": config.max_position_embeddings,
    }
