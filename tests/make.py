"""Small models with random weights and sharp attention, one a family; inputs; what they answer."""

from collections.abc import Callable, Mapping
from typing import cast

import torch
import transformers as tf
from torch import Tensor
from transformers.utils import ModelOutput

RANGE = 0.35
DROPOUT = 0.1
"""Of attention matrices in train mode: the default of most families."""
TOKENS = 300
Settings = dict[str, object]
"""Of a model's configuration."""
SIZES: Settings = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": RANGE,
}
WORDS: Settings = {**SIZES, "vocab_size": TOKENS}
SLOTS: Settings = {"max_position_embeddings": 64}
COUNTING: Settings = {"max_position_embeddings": 66, "pad_token_id": 1}
RELATIVE: Settings = {**SLOTS, "position_biased_input": False, "relative_attention": True}
BUCKETS: Settings = {"position_buckets": 8, "max_relative_positions": 32}
MARKS: Settings = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
GROUPED: Settings = {**WORDS, **SLOTS, "pad_token_id": 0, "num_key_value_heads": 2, "head_dim": 8}
GPT_OSS: Settings = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4}
IMAGES: Settings = {**SIZES, "image_size": 12, "patch_size": 4}
GPT2: Settings = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
WHISPER: Settings = {
    "vocab_size": 60,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "d_model": 32,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "init_std": RANGE,
}
SOUND: Settings = {
    "conv_dim": [16, 16],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 8,
    "vocab_size": 20,
}
Make = Callable[[], tf.PreTrainedModel]


def model_factory(
    family: str, settings: Settings, kind: str = "Model", config: str = "Config"
) -> Make:
    """What makes a model of one of transformers' classes with random weights."""
    model = getattr(tf, f"{family}{kind}")
    configuration = getattr(tf, f"{family}{config}")
    return lambda: model(configuration.from_dict(settings))


def encoder(family: str, settings: Settings) -> Make:
    return model_factory(family, WORDS | settings)


def decoder(family: str, settings: Settings | None = None, config: str = "Config") -> Make:
    return model_factory(family, GROUPED | (settings or {}), "ForCausalLM", config)


ENCODERS: dict[str, Make] = {
    "bert": encoder("Bert", SLOTS),
    "roberta": encoder("Roberta", COUNTING | {"type_vocab_size": 1}),
    "xlm_roberta": encoder("XLMRoberta", COUNTING | {"type_vocab_size": 1}),
    "camembert": encoder("Camembert", COUNTING | {"type_vocab_size": 1}),
    "electra": encoder("Electra", SLOTS | {"embedding_size": 32}),
    "distilbert": encoder("DistilBert", SLOTS | {"hidden_dim": 64}),
    # Three layers share two sets of weights: the first two are the same module.
    "albert": encoder(
        "Albert",
        SLOTS
        | {"embedding_size": 16, "num_hidden_groups": 2, "attention_probs_dropout_prob": DROPOUT},
    ),
    "mpnet": encoder("MPNet", COUNTING),
    # As the published ones: no absolute positions, both position terms, segments.
    "deberta": encoder("Deberta", RELATIVE | {"pos_att_type": "c2p|p2c", "type_vocab_size": 2}),
    # Distances beyond 7 are one; one position term; absolute positions too.
    "deberta_near": encoder(
        "Deberta",
        {"relative_attention": True, "pos_att_type": ["p2c"], "max_relative_positions": 7},
    ),
    # As the published third version: buckets, keys and queries shared with those of content.
    "deberta_v3": encoder(
        "DebertaV2",
        RELATIVE
        | BUCKETS
        | {"pos_att_type": "p2c|c2p", "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    ),
    # As v2-xlarge: a convolution beside the first layer, and projections for positions alone.
    "deberta_v2_xlarge": encoder(
        "DebertaV2",
        RELATIVE
        | BUCKETS
        | {"pos_att_type": ["p2c", "c2p"], "conv_kernel_size": 3, "conv_act": "gelu"},
    ),
    # No buckets, one position term, absolute positions, embeddings of another width, segments.
    "deberta_v2_near": encoder(
        "DebertaV2",
        SLOTS
        | {
            "relative_attention": True,
            "pos_att_type": ["c2p"],
            "max_relative_positions": 7,
            "embedding_size": 16,
            "type_vocab_size": 2,
        },
    ),
    # The first layer sees everything, the others three slots to either side.
    "modernbert": encoder(
        "ModernBert", SLOTS | MARKS | {"local_attention": 6, "attention_dropout": DROPOUT}
    ),
}
TEXT = (
    *("bert", "roberta", "electra", "distilbert", "albert", "modernbert"),
    *("mpnet", "deberta", "deberta_v3", "deberta_v2_xlarge"),
)
"""Those whose heads can be replaced in place."""
DECODERS: dict[str, Make] = {
    "gpt2": model_factory(
        "GPT2",
        {
            **GPT2,
            "scale_attn_by_inverse_layer_idx": True,
            "vocab_size": TOKENS,
            "initializer_range": RANGE,
            "pad_token_id": 0,
        },
        "LMHeadModel",
    ),
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", {"sliding_window": 5}),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3"),
    # Every other layer slides; scores are capped.
    "gemma2": decoder("Gemma2", {"sliding_window": 4, "attn_logit_softcapping": 3.0}),
    "gemma3": decoder(
        "Gemma3", {"sliding_window": 4, "sliding_window_pattern": 2}, config="TextConfig"
    ),
}
OTHERS: dict[str, Make] = {
    "vit": model_factory("ViT", IMAGES),
    "deit": model_factory("DeiT", IMAGES),
    "dinov2": model_factory("Dinov2", IMAGES),
    "clip_vision": model_factory("CLIPVision", {**IMAGES, "initializer_factor": 1.0}),
    "whisper": lambda: model_factory("Whisper", WHISPER)().get_encoder(),
    "wav2vec2": model_factory("Wav2Vec2", {**SIZES, **SOUND}),
}
ABLATED = (*TEXT, *DECODERS, *OTHERS)


def random_model(name: str) -> tf.PreTrainedModel:
    """A model in float64, in eval mode; biases are random too, attention is far from uniform."""
    torch.manual_seed(0)
    model = {**ENCODERS, **DECODERS, **OTHERS}[name]()
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
    shapes = {"whisper": ("input_features", (8, 40)), "wav2vec2": ("input_values", (200,))}
    if name in OTHERS:
        input_name, shape = shapes.get(name, ("pixel_values", (3, 12, 12)))
        return {input_name: torch.randn(batch, *shape, generator=generator, dtype=torch.float64)}
    ids = torch.randint(5, TOKENS, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, length - 3 :] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def outputs_of(model: tf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> ModelOutput:
    with torch.no_grad():
        return model(**inputs)


def answers(model: tf.PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor:
    output = outputs_of(model, inputs)
    outputs: Tensor = output["logits" if "logits" in output else "last_hidden_state"]
    return outputs[inputs["attention_mask"].bool()] if "attention_mask" in inputs else outputs


def generated(
    model: tf.PreTrainedModel,
    inputs: Mapping[str, Tensor],
    *,
    cache: str | None = None,
    use_cache: bool = True,
) -> Tensor:
    """The logits of six tokens that a model adds to each text."""
    # PyTorch's stubs say that any attribute of a module is a tensor or a module.
    generate = cast("Callable[..., ModelOutput]", model.generate)
    outputs = generate(
        **inputs,
        max_new_tokens=6,
        min_new_tokens=6,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        cache_implementation=cache,
        use_cache=use_cache,
    )
    return torch.stack(outputs["logits"])
