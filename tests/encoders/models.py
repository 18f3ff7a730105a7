"""Small encoders with random weights, one a variant: sharp attention, so that equivalence tests
prove something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DebertaConfig,
    DebertaModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

RANGE = 0.35
DROPOUT = 0.1
"""Of attention matrices in train mode: the default of most families."""
SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": RANGE,
}
COUNTING: dict[str, Any] = {"max_position_embeddings": 66, "pad_token_id": 1}
BUCKETS: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": 32,
}


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**SIZES, max_position_embeddings=64))


def roberta() -> PreTrainedModel:
    return RobertaModel(RobertaConfig(**SIZES, **COUNTING, type_vocab_size=1))


def xlm_roberta() -> PreTrainedModel:
    return XLMRobertaModel(XLMRobertaConfig(**SIZES, **COUNTING, type_vocab_size=1))


def camembert() -> PreTrainedModel:
    return CamembertModel(CamembertConfig(**SIZES, **COUNTING, type_vocab_size=1))


def electra() -> PreTrainedModel:
    return ElectraModel(ElectraConfig(**SIZES, embedding_size=32, max_position_embeddings=64))


def distilbert() -> PreTrainedModel:
    sizes = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64}
    return DistilBertModel(
        DistilBertConfig(
            vocab_size=300, **sizes, initializer_range=RANGE, max_position_embeddings=64
        )
    )


def albert() -> PreTrainedModel:
    """Three layers share two sets of weights: the first two are the same module."""
    sizes = {**SIZES, "embedding_size": 16, "num_hidden_groups": 2, "max_position_embeddings": 64}
    return AlbertModel(AlbertConfig(**sizes, attention_probs_dropout_prob=DROPOUT))


def mpnet() -> PreTrainedModel:
    return MPNetModel(MPNetConfig(**SIZES, **COUNTING))


def deberta() -> PreTrainedModel:
    """As the published ones: no absolute positions, both position terms, segments."""
    return DebertaModel(
        DebertaConfig(
            **SIZES,
            relative_attention=True,
            pos_att_type="c2p|p2c",
            position_biased_input=False,
            type_vocab_size=2,
            max_position_embeddings=64,
        )
    )


def deberta_near() -> PreTrainedModel:
    """Distances beyond 7 are one; one position term; absolute positions too."""
    return DebertaModel(
        DebertaConfig(
            **SIZES, relative_attention=True, pos_att_type=["p2c"], max_relative_positions=7
        )
    )


def deberta_v3() -> PreTrainedModel:
    """As the published third version: buckets, keys and queries of positions shared with those of
    content.
    """
    return DebertaV2Model(
        DebertaV2Config(
            **SIZES,
            **BUCKETS,
            pos_att_type="p2c|c2p",
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
            max_position_embeddings=64,
        )
    )


def deberta_v2_xlarge() -> PreTrainedModel:
    """As v2-xlarge: a convolution beside the first layer, and projections for positions alone."""
    return DebertaV2Model(
        DebertaV2Config(
            **SIZES,
            **BUCKETS,
            pos_att_type=["p2c", "c2p"],
            conv_kernel_size=3,
            conv_act="gelu",
            position_biased_input=False,
            max_position_embeddings=64,
        )
    )


def deberta_v2_near() -> PreTrainedModel:
    """No buckets, one position term, absolute positions, embeddings of another width, segments."""
    return DebertaV2Model(
        DebertaV2Config(
            **SIZES,
            relative_attention=True,
            pos_att_type=["c2p"],
            max_relative_positions=7,
            embedding_size=16,
            type_vocab_size=2,
            max_position_embeddings=64,
        )
    )


def modernbert() -> PreTrainedModel:
    """The first layer sees everything, the others three slots to either side."""
    tokens = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    return ModernBertModel(
        ModernBertConfig(
            **SIZES,
            **tokens,
            local_attention=6,
            max_position_embeddings=64,
            attention_dropout=DROPOUT,
        )
    )


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": bert,
    "roberta": roberta,
    "xlm_roberta": xlm_roberta,
    "camembert": camembert,
    "electra": electra,
    "distilbert": distilbert,
    "albert": albert,
    "mpnet": mpnet,
    "deberta": deberta,
    "deberta_near": deberta_near,
    "deberta_v3": deberta_v3,
    "deberta_v2_xlarge": deberta_v2_xlarge,
    "deberta_v2_near": deberta_v2_near,
    "modernbert": modernbert,
}


def random_model(variant: str, seed: int = 0) -> PreTrainedModel:
    """A model in float64 whose weights follow from ``seed``, in eval mode; biases are
    random too.
    """
    torch.manual_seed(seed)
    model = MODELS[variant]()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=RANGE)
    return model.eval().double()
