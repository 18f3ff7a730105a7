"""Tiny configurations of every model type of the installed transformers, by rules for names.

A configuration starts from its class's defaults. Whatever setting it has of those below takes the
value here, in its sub-configurations too. A ``Variant`` undoes some rules that single types refuse.
"""

from dataclasses import dataclass

from transformers import PreTrainedConfig

Value = int | float | bool | str | None | list[int]
TOKENS = 300
"""Size of the vocabulary."""
WIDTH = 32
HEADS = 4
LAYERS = 3

_BY_VALUE: dict[Value, str] = {
    LAYERS: (
        # Numbers of layers
        "num_hidden_layers num_layers n_layer n_layers depth encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers n_encoder_layers encoder_num_hidden_layers "
        "decoder_num_hidden_layers num_encoder_blocks"
    ),
    WIDTH: (
        # Widths
        "hidden_size d_model n_embd embed_dim dim embedding_size encoder_hidden_size "
        "decoder_hidden_size word_embed_proj_dim projection_dim projector_dim text_embed_dim "
        "out_hidden_size output_hidden_size encoder_dim decoder_dim width visual_dim d_embed "
        "emb_dim "
        # Widths of experts
        "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size "
        "moe_ffn_hidden_size expert_dim moe_shared_expert_intermediate_size"
    ),
    64: (
        # Inner widths
        "intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner hidden_dim "
        "dim_feedforward mlp_dim ffn_hidden_size feed_forward_size intermediate_dim "
        "dense_intermediate_size intermediate_size_mlp shared_intermediate_size "
        "encoder_intermediate_size decoder_intermediate_size "
        # Numbers of positions
        "max_position_embeddings n_positions n_ctx seq_length max_sequence_length max_seq_len "
        "max_2d_position_embeddings mamba_d_ssm"
    ),
    16: (
        "q_lora_rank kv_lora_rank qk_head_dim mamba_d_head mamba_headdim image_size codebook_size"
    ),
    8: (
        # Widths of heads, and others
        "head_dim global_head_dim attention_head_dim d_kv kv_channels qk_nope_head_dim "
        "qk_rope_head_dim v_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state "
        "mamba_head_dim ssm_state_size index_head_dim num_mel_bins hidden_size_per_layer_input "
        "num_conv_pos_embeddings block_multiple_of"
    ),
    HEADS: (
        # Numbers of heads
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
        "decoder_attention_heads attention_heads num_decoder_attention_heads "
        "num_encoder_attention_heads encoder_num_attention_heads decoder_num_attention_heads "
        # Numbers of experts, and others
        "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts "
        "n_experts sliding_window local_attention attention_window attention_chunk_size rotary_dim "
        "patch_size linear_num_value_heads mamba_n_heads mamba_dt_rank n_mamba_heads "
        "mamba_num_heads index_topk"
    ),
    2: (
        # Numbers of experts a token, and others
        "num_experts_per_tok moe_topk num_experts_per_token moe_k top_k_experts experts_per_token "
        "moe_top_k linear_num_key_heads index_n_heads num_conv_pos_embedding_groups "
        "num_feat_extract_layers max_window_layers num_codebooks type_vocab_size"
    ),
    1: (
        "n_shared_experts n_group topk_group first_k_dense_replace num_shared_experts "
        "moe_num_shared_experts temporal_patch_size spatial_merge_size mamba_n_groups "
        "mamba_ngroups num_mem_blocks n_groups"
    ),
    0: ("num_kv_shared_layers num_nextn_predict_layers mtp_num_layers chunk_size_feed_forward"),
}
_TINY: dict[str, Value] = {
    name: value for value, names in _BY_VALUE.items() for name in names.split()
}
_TINY |= {
    "vocab_size": TOKENS,
    "vocab_size_per_layer_input": TOKENS,
    "max_source_positions": 32,
    "max_target_positions": 32,
    "num_channels": 3,
    "coordinate_size": 5,
    "shape_size": 6,
    "moe_layer_freq": 1,
    "num_labels": 3,
    # Weights large enough that attention is far from uniform.
    "initializer_range": 0.35,
    "init_std": 0.35,
    "initializer_factor": 1.0,
    # The convolutions of models of sound.
    "conv_dim": [16, 16],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "attention_dropout": 0.0,
    "use_cache": False,
    "use_mamba_kernels": False,
}
_SPECIAL_TOKENS: dict[str, Value] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "mask_token_id": 3,
    "decoder_start_token_id": 1,
}
_KEY_VALUE_HEADS = (
    "num_key_value_heads num_kv_heads n_kv_heads multi_query_group_num num_global_key_value_heads"
)
_MAY_BE_NONE = {"pad_token_id"}
"""Settings that take their value although the default is None, which means something elsewhere."""


@dataclass(frozen=True)
class Variant:
    """Which of the rules a configuration follows.

    Attributes:
        shares_keys: two groups of heads share keys and values, where a type can.
        sets_head_width: the width of heads is set, not derived.
        sets_special_tokens: special tokens are small numbers, not the type's own.
    """

    shares_keys: bool = True
    sets_head_width: bool = True
    sets_special_tokens: bool = True


VARIANTS = (
    Variant(),
    Variant(shares_keys=False),
    Variant(sets_head_width=False),
    Variant(sets_special_tokens=False),
    Variant(shares_keys=False, sets_head_width=False, sets_special_tokens=False),
)


def tiny_configuration(config_class: type[PreTrainedConfig], variant: Variant) -> PreTrainedConfig:
    """Return a configuration of this class that makes a model of some ten thousand parameters."""
    return config_class(**_tiny_settings(config_class(), variant))


def _tiny_settings(config: PreTrainedConfig, variant: Variant) -> dict[str, object]:
    defaults = vars(config)
    rules = dict(_TINY)
    if variant.sets_special_tokens:
        rules |= _SPECIAL_TOKENS
    if not variant.sets_head_width:
        del rules["head_dim"]
    settings: dict[str, object] = {}
    for name, value in rules.items():
        if name not in defaults:
            continue
        default = defaults[name]
        if default is None and name not in _MAY_BE_NONE:
            continue
        if isinstance(default, list | tuple) and not isinstance(value, list):
            if name == "image_size":
                settings[name] = [value] * len(default)
            continue
        settings[name] = value
    for name in _KEY_VALUE_HEADS.split():
        if isinstance(defaults.get(name), int):
            settings[name] = HEADS // 2 if variant.shares_keys else HEADS
    for name in type(config).sub_configs or {}:
        sub_configuration = getattr(config, name, None)
        if isinstance(sub_configuration, PreTrainedConfig):
            settings[name] = {
                **_tiny_settings(sub_configuration, variant),
                "model_type": sub_configuration.model_type,
            }
    return settings
