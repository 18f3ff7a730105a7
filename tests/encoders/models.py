"""Small encoders with random weights, one a family: sharp attention, so that equivalence tests prove something."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import (
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.35,
}


def bert() -> PreTrainedModel:
    return BertModel(BertConfig(**SIZES, max_position_embeddings=64))


def roberta() -> PreTrainedModel:
    return RobertaModel(RobertaConfig(**SIZES, max_position_embeddings=66, pad_token_id=1, type_vocab_size=1))


def electra() -> PreTrainedModel:
    return ElectraModel(ElectraConfig(**SIZES, embedding_size=32, max_position_embeddings=64))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {"bert": bert, "roberta": roberta, "electra": electra}


def random_model(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of ``family`` in float64 whose weights follow from ``seed``, in eval mode."""
    torch.manual_seed(seed)
    return MODELS[family]().eval().double()
