"""Mean queries and mean keys, against a model whose own attention is given nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import papa
from papa.attention.interface import attention_modules
from papa.errors import EncoderError
from tests.ablation.test_laws import EVERY_HEAD, EXACT, LAYERS
from tests.make import answers, inputs_of, random_model

ROTARY = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "modernbert")


def rotating(model: PreTrainedModel, instead: Callable[..., Any]) -> Any:
    """The rotation of a model's layers exchanged, in the order of its calls."""
    modelling = sys.modules[type(attention_modules(model)[0]).__module__]
    return patch.object(modelling, "apply_rotary_pos_emb", instead)


@pytest.mark.parametrize("name", ROTARY)
def test_attention_is_that_of_the_means(name: str) -> None:
    model, inputs, data = random_model(name), inputs_of(name), inputs_of(name, seed=3, batch=4)
    modelling = sys.modules[type(attention_modules(model)[0]).__module__]
    own, seen = modelling.apply_rotary_pos_emb, list[tuple[Tensor, Tensor]]()
    real = data["attention_mask"].bool()

    def record(query: Tensor, key: Tensor, *rotation: Any, **options: Any) -> Any:
        heads = (states.transpose(1, 2)[real].mean(dim=0) for states in (query, key))
        seen.append(tuple(heads))  # type: ignore[arg-type]
        return own(query, key, *rotation, **options)

    with rotating(model, record):
        answers(model, data)
    assert len(seen) == LAYERS
    calls = iter(seen)

    def of_means(query: Tensor, key: Tensor, *rotation: Any, **options: Any) -> Any:
        means = next(calls)
        everywhere = (
            mean[None, :, None].expand_as(states)
            for mean, states in zip(means, (query, key), strict=True)
        )
        return own(*everywhere, *rotation, **options)

    before = answers(model, inputs)
    with rotating(model, of_means):
        expected = answers(model, inputs)
    with papa.ablated(model, EVERY_HEAD, by="mean_qk", data=[data]):
        torch.testing.assert_close(answers(model, inputs), expected, atol=EXACT, rtol=0)
    assert (expected - before).abs().max() > 0.1, "negative control"
    with papa.ablated(model, EVERY_HEAD, by="mean_qk", data=[inputs_of(name, seed=7)]):
        assert (answers(model, inputs) - expected).abs().max() > 1e-3, "negative control"


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_a_model_without_rotary_positions_is_refused(name: str) -> None:
    with (
        pytest.raises(EncoderError, match="needs rotary positions of whole heads"),
        papa.ablated(random_model(name), EVERY_HEAD, by="mean_qk", data=[inputs_of(name)]),
    ):
        pass
