"""Parts of a model of several stacks of layers, chosen by the model's own names; learned sinks and
position biases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import papa
from papa.errors import EncoderError
from papa.heads.attention_layers import attention_parts

TOKENS = torch.randint(3, 50, (1, 9), generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
LAYERS = range(3)
EVERY_HEAD = {layer: range(4) for layer in LAYERS}
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=50,
        d_kv=8,
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_layers=3,
        initializer_factor=1.0,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def clip() -> Any:
    text = {**SIZES, "vocab_size": 50, "initializer_range": 0.35}
    vision = {**SIZES, "image_size": 12, "patch_size": 4, "initializer_range": 0.35}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision))


def gpt_oss() -> Any:
    config = transformers.GptOssConfig(
        **SIZES,
        vocab_size=50,
        initializer_range=0.35,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
    )
    return transformers.GptOssForCausalLM(config)


def eager(create: Callable[[], Any]) -> Any:
    """A model with random weights, sharp attention, and attention matrices that it returns."""
    torch.manual_seed(0)
    model = create().eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and (name.endswith("bias") or "sinks" in name):
            torch.nn.init.normal_(parameter, std=0.35)
    model.set_attn_implementation("eager")
    return model


def outputs(model: Any, **options: Any) -> Any:
    inputs: dict[str, Tensor] = {"input_ids": TOKENS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TOKENS.flip(1)
    if model.config.model_type == "clip":
        inputs["pixel_values"] = IMAGE
    with torch.no_grad():
        return model(**inputs, **options)


@pytest.mark.parametrize(
    ("create", "part", "name"),
    [
        (t5, "encoder", "encoder"),
        (t5, "decoder", "decoder"),
        (clip, "vision_model", "vision_model"),
        (clip, "vision", "vision_model"),
        (clip, "text", "text_model"),
        (gpt_oss, "model", "model"),
    ],
)
def test_a_part_is_chosen_by_its_name(create: Callable[[], Any], part: str, name: str) -> None:
    model = eager(create)
    stack = attention_parts(model)[name]
    before = {path: parameter.clone() for path, parameter in model.named_parameters()}
    observed: list[torch.nn.Module] = []
    for module in stack.modules:
        module.register_forward_hook(lambda module, *_: observed.append(module))
    plain = outputs(model)
    observed.clear()
    with papa.ablated(model, {2: [1]}, substitute="zeros", part=part):
        changed = outputs(model)
    assert observed == stack.modules
    first = next(iter(plain.keys()))
    assert not torch.allclose(plain[first], changed[first])
    assert all(torch.equal(before[path], value) for path, value in model.named_parameters())


@pytest.mark.parametrize("part", [None, "audio", "model"])
def test_a_missing_or_ambiguous_part_names_the_choices(part: str | None) -> None:
    model = eager(clip)
    with (
        pytest.raises(EncoderError) as error,
        papa.ablated(model, {0: [0]}, substitute="zeros", part=part),
    ):
        pytest.fail("the block was entered")
    assert "text_model" in str(error.value)
    assert "vision_model" in str(error.value)


@pytest.mark.parametrize(
    ("create", "part", "matrices_name"),
    [
        (t5, "encoder", "encoder_attentions"),
        (t5, "decoder", "decoder_attentions"),
        (gpt_oss, None, "attentions"),
    ],
)
def test_the_models_own_matrices_reproduce_its_output(
    create: Callable[[], Any], part: str | None, matrices_name: str
) -> None:
    model = eager(create)
    plain = outputs(model, output_attentions=True)
    matrices = torch.stack([layer[0] for layer in plain[matrices_name]])
    with papa.ablated(model, EVERY_HEAD, substitute=matrices, part=part):
        constant = outputs(model)
    torch.testing.assert_close(constant.logits, plain.logits, rtol=1e-3, atol=1e-3)
    with papa.ablated(model, EVERY_HEAD, substitute=matrices.flip(1), part=part):
        other = outputs(model)
    assert not torch.allclose(other.logits, plain.logits, atol=1e-2), "negative control"


def test_rows_beside_a_learned_sink_sum_to_less_than_one() -> None:
    model = eager(gpt_oss)
    expected = torch.stack(outputs(model, output_attentions=True).attentions)
    with papa.ablated(model, {}, substitute="zeros"):
        matrices = torch.stack(outputs(model, output_attentions=True).attentions)
    torch.testing.assert_close(matrices, expected, rtol=1e-4, atol=1e-5)
    assert (expected.sum(-1) < 0.99).any()


def test_an_average_by_distance_leaves_the_sink_its_share() -> None:
    """The first token sees itself and the sink: of its value the average share stays."""
    model = eager(gpt_oss)
    with papa.ablated(model, EVERY_HEAD, substitute="relative", data=[{"input_ids": TOKENS}]):
        matrices = torch.stack(outputs(model, output_attentions=True).attentions)
    shares = 1 - matrices.sum(-1)
    assert shares.min() > 0.0
    assert shares.max() < 1.0
