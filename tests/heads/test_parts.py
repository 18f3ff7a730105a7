"""Parts of a model of several stacks of layers; learned sinks and position biases."""

import pytest
import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

import papa
from papa.errors import EncoderError
from papa.heads.average import AverageByDistance
from papa.native.in_memory import open_in_memory
from tests.make import GPT_OSS, IMAGES, SIZES, Make, Settings, decoder, model_factory, outputs_of

TOKENS = torch.randint(3, 50, (1, 9), generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
SETTINGS = SIZES | {"vocab_size": 50}
T5: Settings = {
    "d_kv": 8,
    "d_model": 32,
    "d_ff": 64,
    "num_heads": 4,
    "num_layers": 3,
    "vocab_size": 50,
    "initializer_factor": 1.0,
    "decoder_start_token_id": 0,
}
t5 = model_factory("T5", T5, "ForConditionalGeneration")
clip = model_factory("CLIP", {"text_config": SETTINGS, "vision_config": IMAGES})
gpt_oss = decoder("GptOss", GPT_OSS)


def eager(create: Make) -> PreTrainedModel:
    """A model with random weights, sharp attention, and attention matrices that it returns."""
    torch.manual_seed(0)
    model = create().eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and (name.endswith("bias") or "sinks" in name):
            torch.nn.init.normal_(parameter, std=0.35)
    model.set_attn_implementation("eager")
    return model


def outputs(model: PreTrainedModel, *, output_attentions: bool = False) -> ModelOutput:
    inputs: dict[str, object] = {"input_ids": TOKENS, "output_attentions": output_attentions}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TOKENS.flip(1)
    if model.config.model_type == "clip":
        inputs["pixel_values"] = IMAGE
    return outputs_of(model, inputs)


@pytest.mark.parametrize("name", ["vision", "text"])
def test_the_name_of_a_part_may_be_shortened(name: str) -> None:
    model = eager(clip)
    with papa.ablated(model, {2: [1]}, substitute="zeros", part=f"{name}_model"):
        expected = outputs(model).logits_per_text
    with papa.ablated(model, {2: [1]}, substitute="zeros", part=name):
        assert torch.equal(outputs(model).logits_per_text, expected)
    assert not torch.allclose(outputs(model).logits_per_text, expected), "negative control"


@pytest.mark.parametrize("part", [None, "audio", "model"])
def test_a_missing_or_ambiguous_part_names_the_choices(part: str | None) -> None:
    model = eager(clip)
    block = papa.ablated(model, {0: [0]}, substitute="zeros", part=part)
    with pytest.raises(EncoderError) as error, block:
        pytest.fail("the block was entered")
    assert "text_model" in str(error.value)
    assert "vision_model" in str(error.value)


def test_rows_beside_a_learned_sink_sum_to_less_than_one() -> None:
    model = eager(gpt_oss)
    expected = torch.stack(outputs(model, output_attentions=True).attentions)
    with papa.ablated(model, {}, substitute="zeros"):
        matrices = torch.stack(outputs(model, output_attentions=True).attentions)
    torch.testing.assert_close(matrices, expected, rtol=1e-4, atol=1e-5)
    assert (expected.sum(-1) < 0.99).any()


def test_the_average_share_of_a_sink_leaves_out_padding() -> None:
    model = eager(gpt_oss)
    texts = [{"input_ids": ids, "attention_mask": ids > 0} for ids in (TOKENS, TOKENS[:, :4])]
    average = AverageByDistance()
    open_in_memory(model, texts).observe(average.observe)
    by_text = [
        1 - torch.cat(outputs_of(model, text | {"output_attentions": True}).attentions).sum(-1)
        for text in texts
    ]
    expected = torch.cat(by_text, dim=-1).mean(-1)
    torch.testing.assert_close(average.substitute().sinks, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:data holds one text")
@pytest.mark.parametrize(("part", "layer"), [("encoder", 1), ("decoder", 2)])
def test_heads_of_a_part_are_scored_as_if_they_were_replaced_by_hand(part: str, layer: int) -> None:
    model = eager(t5)
    labels = TOKENS.flip(1)
    batch = {"input_ids": TOKENS, "labels": labels}
    scores = papa.head_scores(
        model, [batch], method="effect", substitute="zeros", part=part, progress=False
    )
    assert len(scores) == 3 * 4
    before = outputs_of(model, batch).loss
    with papa.ablated(model, [(layer, 2)], substitute="zeros", part=part):
        after = outputs_of(model, batch).loss
    row = (scores["layer"] == layer) & (scores["head"] == 2)
    assert float(scores[row]["score"].iloc[0]) == pytest.approx(float(after - before), abs=1e-5)
    assert abs(float(after - before)) > 1e-3, "negative control"


PARTS_BATCH = {"input_ids": torch.cat([TOKENS, TOKENS.roll(2)]), "labels": TOKENS.repeat(2, 1)}


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_sets_of_heads_of_a_part_cost_what_they_cost_when_replaced_by_hand(part: str) -> None:
    model = eager(t5)
    heads = [(0, 1), (2, 3)]
    compared = papa.joint_effects(
        model, [PARTS_BATCH], head_sets=[heads], substitute="zeros", part=part, progress=False
    )
    before = outputs_of(model, PARTS_BATCH).loss
    with papa.ablated(model, heads, substitute="zeros", part=part):
        after = outputs_of(model, PARTS_BATCH).loss
    assert float(compared.effects["joint"].iloc[0]) == pytest.approx(
        float(after - before), abs=1e-5
    )
    assert abs(float(after - before)) > 1e-3, "negative control"


def test_the_search_replaces_heads_of_the_part() -> None:
    part = "decoder"
    model = eager(t5)
    scores = papa.head_scores(
        model, [PARTS_BATCH], method="effect", substitute="zeros", part=part, progress=False
    )
    found = papa.search_heads(
        model,
        [PARTS_BATCH],
        scores=scores,
        max_effect=10.0,
        substitute="zeros",
        part=part,
        progress=False,
    )
    before = outputs_of(model, PARTS_BATCH).loss
    trial = found.trials.iloc[-1]
    heads = papa.constant_heads(scores, count=int(trial["constant_heads"]))
    with papa.ablated(model, heads, substitute="zeros", part=part):
        after = outputs_of(model, PARTS_BATCH).loss
    assert float(trial["effect"]) == pytest.approx(float(after - before), abs=1e-5)
