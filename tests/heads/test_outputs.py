"""Constant outputs of layers that call attention twice a pass (DiffLlama): one for each call."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import DiffLlamaConfig, DiffLlamaForCausalLM

import papa
from papa.heads.outputs import ConstantOutputs
from papa.heads.resampling import Resampled
from papa.library.substitutes import substitute_for
from tests.make import SIZES

EVERY_HEAD = {layer: range(4) for layer in range(2)}


@pytest.fixture(scope="module")
def model() -> DiffLlamaForCausalLM:
    torch.manual_seed(0)
    settings = SIZES | {"vocab_size": 50, "num_hidden_layers": 2, "num_key_value_heads": 2}
    return DiffLlamaForCausalLM(DiffLlamaConfig.from_dict(settings)).eval()


@torch.no_grad()
def logits(model: DiffLlamaForCausalLM, ids: Tensor, substitute: object = None) -> Tensor:
    """The model's logits; with a substitute those of all heads replaced."""
    if substitute is None:
        return model(input_ids=ids).logits
    with papa.ablated(model, EVERY_HEAD, substitute=substitute):
        return model(input_ids=ids).logits


@pytest.mark.parametrize("name", ["mean_output", "resampled_output"])
def test_each_call_of_a_layer_has_its_own_output(model: DiffLlamaForCausalLM, name: str) -> None:
    # In a text of one token over and over, a head outputs the same at each position of each length.
    text = torch.full((1, 6), 7)
    shorter = text[:, 1:]
    outputs = substitute_for(model, name, [{"input_ids": text}])
    if isinstance(outputs, Resampled):
        (outputs,) = outputs.choices
    assert isinstance(outputs, ConstantOutputs)
    expected = logits(model, shorter)
    torch.testing.assert_close(logits(model, shorter, outputs), expected, atol=1e-4, rtol=0)
    by_call = outputs.values.unflatten(0, (2, 2))
    of_both = by_call.mean(dim=1, keepdim=True).expand_as(by_call).flatten(0, 1)
    wrong = logits(model, shorter, replace(outputs, values=of_both))
    assert float((wrong - expected).abs().max()) > 0.1, "negative control: the mean of both calls"
