"""Small models with random weights and sharp attention, one a family behind transformers' attention
interface.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from torch import Tensor

from tests.encoders.models import MODELS as ENCODERS
from tests.encoders.models import RANGE

TOKENS = 300
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": RANGE,
}
LANGUAGE: dict[str, Any] = {
    **SIZES,
    "vocab_size": TOKENS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED: dict[str, Any] = {**LANGUAGE, "num_key_value_heads": 2, "head_dim": 8}
WHISPER: dict[str, Any] = {
    "vocab_size": 60,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
IMAGES: dict[str, Any] = {**SIZES, "image_size": 12, "patch_size": 4}


def gpt2() -> tf.PreTrainedModel:
    sizes = {
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
        "scale_attn_by_inverse_layer_idx": True,
    }
    return tf.GPT2LMHeadModel(
        tf.GPT2Config(**sizes, vocab_size=TOKENS, initializer_range=RANGE, pad_token_id=0)
    )


def gemma2() -> tf.PreTrainedModel:
    """Every other layer slides; scores are capped."""
    return tf.Gemma2ForCausalLM(
        tf.Gemma2Config(**GROUPED, sliding_window=4, attn_logit_softcapping=3.0)
    )


def gemma3() -> tf.PreTrainedModel:
    return tf.Gemma3ForCausalLM(
        tf.Gemma3TextConfig(**GROUPED, sliding_window=4, sliding_window_pattern=2)
    )


def wav2vec2() -> tf.PreTrainedModel:
    sound = {
        "conv_dim": [16, 16],
        "conv_stride": [5, 2],
        "conv_kernel": [10, 3],
        "num_feat_extract_layers": 2,
    }
    groups = {"num_conv_pos_embedding_groups": 2, "num_conv_pos_embeddings": 8, "vocab_size": 20}
    return tf.Wav2Vec2Model(tf.Wav2Vec2Config(**SIZES, **sound, **groups))


def whisper() -> tf.PreTrainedModel:
    sizes = {
        "d_model": 32,
        "encoder_layers": 3,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
    }
    config = tf.WhisperConfig(
        **sizes,
        **WHISPER,
        decoder_layers=1,
        decoder_attention_heads=4,
        num_mel_bins=8,
        max_source_positions=20,
        init_std=RANGE,
    )
    return tf.WhisperModel(config).get_encoder()


DECODERS: dict[str, Callable[[], tf.PreTrainedModel]] = {
    "gpt2": gpt2,
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**GROUPED, sliding_window=5)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**LANGUAGE, num_key_value_heads=2)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**GROUPED)),
    "gemma2": gemma2,
    "gemma3": gemma3,
}
OTHERS: dict[str, Callable[[], tf.PreTrainedModel]] = {
    "vit": lambda: tf.ViTModel(tf.ViTConfig(**IMAGES)),
    "deit": lambda: tf.DeiTModel(tf.DeiTConfig(**IMAGES)),
    "dinov2": lambda: tf.Dinov2Model(tf.Dinov2Config(**IMAGES)),
    "clip_vision": lambda: tf.CLIPVisionModel(
        tf.CLIPVisionConfig(**IMAGES, initializer_factor=1.0)
    ),
    "whisper": whisper,
    "wav2vec2": wav2vec2,
}
TEXT = ("bert", "roberta", "electra", "distilbert", "albert", "modernbert")
MODELS = {**{name: ENCODERS[name] for name in TEXT}, **DECODERS, **OTHERS}


def random_model(name: str, seed: int = 0) -> tf.PreTrainedModel:
    """A model in float64 with weights from ``seed``, in eval mode, its attention far
    from uniform.
    """
    torch.manual_seed(seed)
    model = MODELS[name]()
    uniform = name in ("clip_vision", "wav2vec2", "whisper")
    for key, parameter in model.named_parameters():
        if (parameter.dim() == 1 and key.endswith("bias")) or (
            uniform and ("q_proj" in key or "k_proj" in key)
        ):
            torch.nn.init.normal_(parameter, std=RANGE)
    return model.eval().double()


def inputs_of(name: str, seed: int = 1, batch: int = 2, length: int = 9) -> dict[str, Tensor]:
    """What the model is called with; texts are of unlike length, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    if name in ("vit", "deit", "dinov2", "clip_vision"):
        return {
            "pixel_values": torch.randn(batch, 3, 12, 12, generator=generator, dtype=torch.float64)
        }
    if name == "whisper":
        return {
            "input_features": torch.randn(batch, 8, 40, generator=generator, dtype=torch.float64)
        }
    if name == "wav2vec2":
        return {"input_values": torch.randn(batch, 200, generator=generator, dtype=torch.float64)}
    ids = torch.randint(5, TOKENS, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, length - 3 :] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def answers(model: tf.PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Logits or last hidden states, at real tokens."""
    with torch.no_grad():
        output = model(**inputs)
    found = output.logits if "logits" in output else output.last_hidden_state
    return found[inputs["attention_mask"].bool()] if "attention_mask" in inputs else found
