"""Attention matrices that a model outputs inside a block are those that its heads use."""

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import papa
from tests.heads.substitutes import EXACT, LAWS
from tests.make import ABLATED, inputs_of, random_model

pytestmark = pytest.mark.unchecked
REPLACED = [(0, 1), (0, 2), (1, 0)]


@torch.no_grad()
def matrices(model: PreTrainedModel, inputs: dict[str, Tensor]) -> list[Tensor]:
    attentions = model(**inputs, output_attentions=True).attentions
    real = inputs.get("attention_mask", torch.ones(2, attentions[0].shape[-1])).bool()
    return [layer_attention * real[:, None, :, None] for layer_attention in attentions]


@pytest.mark.parametrize("name", ABLATED)
def test_they_are_the_models_own_but_for_replaced_heads(name: str) -> None:
    model = random_model(name)
    inputs = inputs_of(name)
    model.set_attn_implementation("eager")
    original = matrices(model, inputs)
    with papa.ablated(model, {}, substitute="zeros"):
        for returned, expected in zip(matrices(model, inputs), original, strict=True):
            torch.testing.assert_close(returned, expected, atol=EXACT, rtol=0)
    for name_of_law in ("zeros", "first", "streaming", "duo"):
        substitute, law = LAWS[name_of_law]
        with papa.ablated(model, REPLACED, substitute=substitute):
            first, second, _ = matrices(model, inputs)
        expected = original[0].clone()
        expected[:, [1, 2]] = law(0, original[0])[:, [1, 2]].to(original[0].dtype)
        torch.testing.assert_close(first, expected * (original[0] > 0), atol=EXACT, rtol=0)
        assert not second.allclose(original[1]), "negative control"
    assert all(map(torch.equal, original, matrices(model, inputs)))


def test_a_step_with_a_cache_has_the_constants_of_its_text() -> None:
    model = random_model("llama")
    inputs = inputs_of("llama")
    with papa.ablated(model, {0: range(4)}, substitute="average", data=[inputs]):
        first, *_ = matrices(model, inputs)
        row = {name: values[:1] for name, values in inputs.items()}
        settings = {"max_new_tokens": 1, "do_sample": False, "pad_token_id": 0}
        settings |= {"output_attentions": True, "return_dict_in_generate": True}
        (step,) = model.generate(**row, **settings).attentions
    length = inputs["attention_mask"][1].sum()
    torch.testing.assert_close(first[0, :, :length, :length], first[1, :, :length, :length])
    torch.testing.assert_close(step[0], first[:1])


def test_constant_outputs_have_none() -> None:
    model = random_model("bert")
    inputs = inputs_of("bert")
    block = papa.ablated(model, [(0, 0)], substitute="mean_output", data=[inputs])
    with block, pytest.raises(papa.PapaError, match="output_attentions"):
        model(**inputs, output_attentions=True)
