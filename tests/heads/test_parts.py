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
        flipped = outputs(model)
    assert not torch.allclose(flipped.logits, plain.logits, atol=1e-2), "negative control"


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


@pytest.mark.parametrize(("part", "layer"), [("encoder", 1), ("decoder", 2)])
def test_heads_of_a_part_are_scored_as_if_they_were_replaced_by_hand(part: str, layer: int) -> None:
    model = eager(t5)
    labels = TOKENS.flip(1)
    batch = {"input_ids": TOKENS, "labels": labels}
    scores = papa.head_scores(
        model, [batch], method="effect", substitute="zeros", part=part, progress=False
    )
    assert len(scores) == 3 * 4
    with torch.no_grad():
        before = model(**batch).loss
        with papa.ablated(model, [(layer, 2)], substitute="zeros", part=part):
            after = model(**batch).loss
    row = (scores["layer"] == layer) & (scores["head"] == 2)
    assert float(scores[row]["score"].iloc[0]) == pytest.approx(float(after - before), abs=1e-5)
    assert abs(float(after - before)) > 1e-3, "negative control"


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_part_is_measured_by_the_loss_of_the_model(part: str) -> None:
    model = eager(t5)
    data = {
        split: [{"input_ids": TOKENS.roll(shift, 1), "labels": TOKENS.flip(1)} for shift in shifts]
        for split, shifts in (("train", (1, 2)), ("validation", (0, 3)))
    }
    measurement = papa.measure(
        model,
        data,
        substitutes=["zeros"],
        orders=["effect"],
        keep=[1, 0],
        probe_seeds=[0],
        ranking_seeds=[0],
        part=part,
        progress=False,
    )
    expected: list[float] = []
    with torch.no_grad():
        for batch in data["validation"]:
            with papa.ablated(model, EVERY_HEAD, substitute="zeros", part=part):
                expected.append(float(model(**batch).loss))
    results = measurement.results.set_index("fraction")["score"]
    assert results[0.0] == pytest.approx(-sum(expected) / len(expected), abs=1e-5)
    assert abs(results[0.0] - results[1.0]) > 1e-2


def test_scores_of_a_model_with_parts_name_the_parts() -> None:
    batch = {"input_ids": TOKENS, "labels": TOKENS}
    with pytest.raises(EncoderError) as raised:
        papa.head_scores(eager(t5), [batch], method="effect", progress=False)
    assert all(name in str(raised.value) for name in ("part=", "encoder", "decoder"))
