"""Trained weights for other families: all-MiniLM-L6-v2, a BERT, under the names of classes that
compute the same.

Segments, which some classes lack, are folded in: all tokens of segment 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers as tf
from torch import Tensor

from papa.encoders.encoder import Encoder

Weights = dict[str, Tensor]
POSITIONS = "embeddings.position_embeddings.weight"


def as_roberta(bert: Encoder) -> tf.PreTrainedModel:
    """The same function of counted positions: real tokens count from ``pad_token_id + 1``."""
    config = tf.RobertaConfig(**_sizes(bert, positions=1), pad_token_id=0, type_vocab_size=2)
    return _loaded(tf.RobertaModel(config, add_pooling_layer=False), _shifted(_weights(bert), 1))


def as_deberta(bert: Encoder) -> tf.PreTrainedModel:
    """The same function: without relative positions a bias of keys alone is lost, which moves no
    softmax.
    """
    weights = _weights(bert)
    for layer in range(bert.layers):
        at = f"encoder.layer.{layer}.attention.self."
        parts = [
            weights.pop(f"{at}{part}.weight").unflatten(0, (bert.heads, -1))
            for part in ("query", "key", "value")
        ]
        weights[f"{at}in_proj.weight"] = torch.stack(parts, dim=1).flatten(0, 2)
        weights[f"{at}q_bias"], weights[f"{at}v_bias"] = (
            weights.pop(f"{at}query.bias"),
            weights.pop(f"{at}value.bias"),
        )
        del weights[f"{at}key.bias"]
    return _loaded(
        tf.DebertaModel(tf.DebertaConfig(**_sizes(bert), type_vocab_size=2, pad_token_id=0)),
        weights,
    )


def as_deberta_v2(bert: Encoder) -> tf.PreTrainedModel:
    """The same function, without relative positions."""
    config = tf.DebertaV2Config(**_sizes(bert), type_vocab_size=2, pad_token_id=0)
    return _loaded(tf.DebertaV2Model(config), _renamed(_weights(bert), _PROJECTIONS_V2))


_PROJECTIONS_V2 = {
    f"attention.self.{part}": f"attention.self.{part}_proj" for part in ("query", "key", "value")
}


def _sizes(bert: Encoder, positions: int = 0) -> dict[str, Any]:
    names = ["vocab_size", "hidden_size", "intermediate_size", "layer_norm_eps"]
    names += ["num_hidden_layers", "num_attention_heads"]
    config = bert.config
    return {
        **{name: getattr(config, name) for name in names},
        "max_position_embeddings": config.max_position_embeddings + positions,
    }


def _weights(bert: Encoder) -> Weights:
    return {name: tensor.clone() for name, tensor in bert.model.state_dict().items()}


def _shifted(weights: Weights, rows: int) -> Weights:
    positions = weights[POSITIONS]
    return {
        **weights,
        POSITIONS: torch.cat([positions.new_zeros(rows, positions.shape[1]), positions]),
    }


def _renamed(weights: Weights, names: Mapping[str, str]) -> Weights:
    """Each weight under its new name: ``names`` are replaced in turn."""
    renamed = {}
    for name, tensor in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def _loaded(model: tf.PreTrainedModel, weights: Weights) -> tf.PreTrainedModel:
    model.load_state_dict(weights, strict=True)
    return model.eval()
