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
SEGMENTS = "embeddings.token_type_embeddings.weight"


def as_electra(bert: Encoder) -> tf.PreTrainedModel:
    """The same function."""
    config = tf.ElectraConfig(**_sizes(bert), embedding_size=bert.width, type_vocab_size=2)
    return _loaded(tf.ElectraModel(config), _weights(bert))


def as_distilbert(bert: Encoder) -> tf.PreTrainedModel:
    """The same function of one segment."""
    config = bert.config
    sizes = {"dim": bert.width, "n_layers": bert.layers, "n_heads": bert.heads}
    sizes |= {"hidden_dim": config.intermediate_size, "vocab_size": config.vocab_size}
    sizes |= {"max_position_embeddings": config.max_position_embeddings}
    model = tf.DistilBertModel(tf.DistilBertConfig(**sizes))
    names = {
        "encoder.layer.": "transformer.layer.",
        "attention.self.query": "attention.q_lin",
        "attention.self.key": "attention.k_lin",
        "attention.self.value": "attention.v_lin",
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    }
    return _loaded(model, _renamed(_without_segments(_weights(bert)), names))


def as_roberta(bert: Encoder) -> tf.PreTrainedModel:
    """The same function of counted positions: real tokens count from ``pad_token_id + 1``."""
    config = tf.RobertaConfig(**_sizes(bert, positions=1), pad_token_id=0, type_vocab_size=2)
    return _loaded(tf.RobertaModel(config, add_pooling_layer=False), _shifted(_weights(bert), 1))


def as_mpnet(bert: Encoder) -> tf.PreTrainedModel:
    """A function of its own: BERT's with counted positions, and a random bias by
    relative position.
    """
    config = tf.MPNetConfig(**_sizes(bert, positions=2), pad_token_id=1)
    weights = _shifted(_without_segments(_weights(bert)), 2)
    names = {
        "attention.self.query": "attention.attn.q",
        "attention.self.key": "attention.attn.k",
        "attention.self.value": "attention.attn.v",
        "attention.output.dense": "attention.attn.o",
        "attention.output.LayerNorm": "attention.LayerNorm",
    }
    bias = torch.randn(32, bert.heads, generator=torch.Generator().manual_seed(0))
    weights = {**_renamed(weights, names), "encoder.relative_attention_bias.weight": bias}
    return _loaded(tf.MPNetModel(config, add_pooling_layer=False), weights)


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


def as_deberta_v3(bert: Encoder) -> tf.PreTrainedModel:
    """A function of its own: BERT's content attention, and random relative positions in
    16 buckets.
    """
    config = tf.DebertaV2Config(
        **_sizes(bert),
        type_vocab_size=2,
        pad_token_id=0,
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["c2p", "p2c"],
        share_att_key=True,
    )
    relative = torch.randn(32, bert.width, generator=torch.Generator().manual_seed(0)) * 0.3
    weights = {
        **_renamed(_weights(bert), _PROJECTIONS_V2),
        "encoder.rel_embeddings.weight": relative,
    }
    return _loaded(tf.DebertaV2Model(config), weights)


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


def _without_segments(weights: Weights) -> Weights:
    segments = weights.pop(SEGMENTS)
    return {**weights, POSITIONS: weights[POSITIONS] + segments[0]}


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
