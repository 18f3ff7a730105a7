"""Small encoders with random weights, one a variant: sharp attention, so that equivalence tests
prove something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

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
SLOTS: dict[str, Any] = {"max_position_embeddings": 64}
RELATIVE: dict[str, Any] = {**SLOTS, "position_biased_input": False}
BUCKETS: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": 32,
}
MARKS: dict[str, Any] = {"pad_token_id": 0} | {
    f"{name}_token_id": number for name, number in (("bos", 1), ("eos", 2), ("cls", 1), ("sep", 2))
}


def made(family: str, **settings: Any) -> Callable[[], tf.PreTrainedModel]:
    """The model of a family with ``SIZES`` and more settings, or others."""
    model, config = getattr(tf, f"{family}Model"), getattr(tf, f"{family}Config")
    return lambda: model(config(**{**SIZES, **settings}))


MODELS: dict[str, Callable[[], tf.PreTrainedModel]] = {
    "bert": made("Bert", **SLOTS),
    "roberta": made("Roberta", **COUNTING, type_vocab_size=1),
    "xlm_roberta": made("XLMRoberta", **COUNTING, type_vocab_size=1),
    "camembert": made("Camembert", **COUNTING, type_vocab_size=1),
    "electra": made("Electra", **SLOTS, embedding_size=32),
    "distilbert": made("DistilBert", **SLOTS, hidden_dim=64),
    # Three layers share two sets of weights: the first two are the same module.
    "albert": made(
        "Albert",
        **SLOTS,
        embedding_size=16,
        num_hidden_groups=2,
        attention_probs_dropout_prob=DROPOUT,
    ),
    "mpnet": made("MPNet", **COUNTING),
    # As the published ones: no absolute positions, both position terms, segments.
    "deberta": made(
        "Deberta", **RELATIVE, relative_attention=True, pos_att_type="c2p|p2c", type_vocab_size=2
    ),
    # Distances beyond 7 are one; one position term; absolute positions too.
    "deberta_near": made(
        "Deberta", relative_attention=True, pos_att_type=["p2c"], max_relative_positions=7
    ),
    # As the published third version: buckets, keys and queries of positions shared with those of
    # content.
    "deberta_v3": made(
        "DebertaV2",
        **RELATIVE,
        **BUCKETS,
        pos_att_type="p2c|c2p",
        share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
    # As v2-xlarge: a convolution beside the first layer, and projections for positions alone.
    "deberta_v2_xlarge": made(
        "DebertaV2",
        **RELATIVE,
        **BUCKETS,
        pos_att_type=["p2c", "c2p"],
        conv_kernel_size=3,
        conv_act="gelu",
    ),
    # No buckets, one position term, absolute positions, embeddings of another width, segments.
    "deberta_v2_near": made(
        "DebertaV2",
        **SLOTS,
        relative_attention=True,
        pos_att_type=["c2p"],
        max_relative_positions=7,
        embedding_size=16,
        type_vocab_size=2,
    ),
    # The first layer sees everything, the others three slots to either side.
    "modernbert": made(
        "ModernBert", **SLOTS, **MARKS, local_attention=6, attention_dropout=DROPOUT
    ),
}


def random_model(variant: str, seed: int = 0) -> tf.PreTrainedModel:
    """A model in float64 whose weights follow from ``seed``, in eval mode; biases are
    random too.
    """
    torch.manual_seed(seed)
    model = MODELS[variant]()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=RANGE)
    return model.eval().double()
