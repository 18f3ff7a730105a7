"""The share of a learned sink as a score of heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM

import papa
from papa.errors import SpecError

LAYERS = 2
HEADS = 4
SIZES: dict[str, Any] = {
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "head_dim": 8,
    "intermediate_size": 32,
    "vocab_size": 50,
    "initializer_range": 0.35,
}
TEXTS = [
    {"input_ids": torch.randint(50, (6, length), generator=torch.Generator().manual_seed(length))}
    for length in (7, 10)
]


@pytest.fixture(scope="module")
def gpt_oss() -> GptOssForCausalLM:
    torch.manual_seed(0)
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    model = GptOssForCausalLM(GptOssConfig(**SIZES, **experts, sliding_window=4)).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    model.set_attn_implementation("eager")
    return model


def shares_of_sinks(model: GptOssForCausalLM) -> np.ndarray:
    """What rows of the model's own attention lack to one, of each text [texts, layers, heads]."""
    by_text: list[np.ndarray] = []
    with torch.inference_mode():
        for batch in TEXTS:
            matrices = model(**batch, output_attentions=True).attentions
            shares = 1 - torch.stack(matrices, dim=1).double().sum(-1)
            by_text.extend(shares.numpy())
    return np.array([shares.mean(-1) for shares in by_text])


def test_sink_share_is_what_rows_lack_to_one(gpt_oss: GptOssForCausalLM) -> None:
    frame = papa.head_scores(gpt_oss, TEXTS, method="sink_share", ranking_seeds=[0], progress=False)
    by_text = shares_of_sinks(gpt_oss)
    lengths = np.repeat([7, 10], 6)
    expected = -np.average(by_text, axis=0, weights=lengths)
    np.testing.assert_allclose(frame["score"], expected.ravel(), atol=1e-5)
    assert np.ptp(expected) > 0.1, "negative control: heads differ"
    assert (frame["low"] < frame["score"]).all()
    assert (frame["score"] < frame["high"]).all()


def test_a_model_without_sinks_has_no_share_of_them() -> None:
    llama = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    with pytest.raises(SpecError) as error:
        papa.head_scores(llama, TEXTS, method="sink_share", progress=False)
    assert "sink_share" in str(error.value)


def test_an_order_follows_the_share_of_sinks(gpt_oss: GptOssForCausalLM) -> None:
    measurement = papa.measure(
        gpt_oss, TEXTS, orders=["sink_share"], keep=[0.5], probe_seeds=[0], progress=False
    )
    (heads,) = measurement.constant_heads.values()
    first = papa.constant_heads(measurement.head_scores, keep=0.5)
    assert heads == tuple(sorted(first))
