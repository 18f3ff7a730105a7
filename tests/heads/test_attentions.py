"""Attention matrices that a model outputs inside a block are those that its heads use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import papa
from tests.heads.test_in_place import EXACT, LAWS
from tests.make import ABLATED, inputs_of, random_model

pytestmark = pytest.mark.unchecked
REPLACED = [(0, 1), (0, 2), (1, 0)]


@torch.no_grad()
def matrices(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    found = model(**inputs, output_attentions=True).attentions
    real = inputs.get("attention_mask", torch.ones(2, found[0].shape[-1])).bool()
    return [one * real[:, None, :, None] for one in found]


@pytest.mark.parametrize("name", ABLATED)
def test_they_are_the_models_own_but_for_replaced_heads(name: str) -> None:
    model, inputs = random_model(name), inputs_of(name)
    model.set_attn_implementation("eager")
    own = matrices(model, inputs)
    with papa.ablated(model, {}, substitute="zeros"):
        for found, expected in zip(matrices(model, inputs), own, strict=True):
            torch.testing.assert_close(found, expected, atol=EXACT, rtol=0)
    for by in ("zeros", "first", "streaming", "duo"):
        given, law = LAWS[by]
        with papa.ablated(model, REPLACED, substitute=given):
            first, second, _ = matrices(model, inputs)
        expected = own[0].clone()
        expected[:, [1, 2]] = law(0, own[0])[:, [1, 2]].to(own[0].dtype)
        torch.testing.assert_close(first, expected * (own[0] > 0), atol=EXACT, rtol=0)
        assert not second.allclose(own[1]), "negative control"
    assert all(map(torch.equal, own, matrices(model, inputs)))


def test_constants_of_every_text_and_of_steps_with_a_cache() -> None:
    model, inputs = random_model("llama"), inputs_of("llama")
    with papa.ablated(model, {0: range(4)}, substitute="average", data=[inputs]):
        first, *_ = matrices(model, inputs)
        row = {name: one[:1] for name, one in inputs.items()}
        options: dict[str, Any] = {"max_new_tokens": 1, "do_sample": False, "pad_token_id": 0}
        options |= {"output_attentions": True, "return_dict_in_generate": True}
        (step,) = model.generate(**row, **options).attentions
    length = inputs["attention_mask"][1].sum()
    torch.testing.assert_close(first[0, :, :length, :length], first[1, :, :length, :length])
    torch.testing.assert_close(step[0], first[:1])


def test_constant_outputs_have_none() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    with (
        papa.ablated(model, [(0, 0)], substitute="mean_output", data=[inputs]),
        pytest.raises(papa.PapaError, match="call the model without output_attentions"),
    ):
        model(**inputs, output_attentions=True)
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    with papa.ablated(model, [(0, 0)], substitute="average", data=[inputs]):
        assert len(model(**inputs).attentions) == 3
