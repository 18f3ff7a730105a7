"""What must hold for every family behind transformers' attention interface, on random weights with
sharp attention.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import papa
from papa.attention import TESTED
from papa.attention.constants import ConstantMatrices
from papa.attention.replacement import replaced
from papa.attention.substitutes import Reused, Streaming
from papa.encoders.encoder import Encoder
from tests.encoders.inputs import SLOTS, some_inputs
from tests.make import ABLATED, DECODERS, TEXT, answers, inputs_of, random_model

EXACT = 1e-5
LAYERS, HEADS = 3, 4
EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
SOME_HEADS = [(0, 1), (1, 0), (1, 3), (2, 2)]


def test_the_families_that_are_said_to_be_tested_are() -> None:
    tested = {name for family in TESTED for name in family.model_types}
    assert tested == {random_model(name).config.model_type for name in ABLATED}


def alone(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: values[:1] for name, values in inputs.items()}


@pytest.mark.parametrize("name", ABLATED)
def test_a_model_none_of_whose_heads_are_replaced_answers_as_ever(name: str) -> None:
    model, inputs = random_model(name), inputs_of(name)
    before = answers(model, inputs)
    with papa.ablated(model, []):
        torch.testing.assert_close(answers(model, inputs), before, atol=EXACT, rtol=0)
    with papa.ablated(model, SOME_HEADS):
        assert (answers(model, inputs) - before).abs().max() > 0.1
    assert torch.equal(answers(model, inputs), before)


@pytest.mark.parametrize("name", ABLATED)
def test_the_average_over_one_text_gives_that_texts_own_answers(name: str) -> None:
    model, inputs = random_model(name), alone(inputs_of(name))
    other = alone(inputs_of(name, seed=5))
    before = answers(model, inputs)
    with papa.ablated(model, EVERY_HEAD, by="average", data=[inputs]):
        torch.testing.assert_close(answers(model, inputs), before, atol=EXACT, rtol=0)
    with papa.ablated(model, EVERY_HEAD, by="average", data=[other]):
        assert (answers(model, inputs) - before).abs().max() > 0.1


@pytest.mark.parametrize("name", ABLATED)
def test_what_heads_put_out_in_another_text_is_not_their_own(name: str) -> None:
    model, inputs = random_model(name), alone(inputs_of(name))
    before, other = answers(model, inputs), alone(inputs_of(name, seed=5))
    with papa.ablated(model, EVERY_HEAD, by="resample", data=[other]):
        found = answers(model, inputs)
    assert (found - before).abs().max() > 0.1
    with papa.ablated(model, EVERY_HEAD, by="resample", data=[inputs, other]):
        torch.testing.assert_close(answers(model, inputs), found, atol=EXACT, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("by", ["zeros", "mean", "average", "relative", Streaming(1, 3)])
def test_a_constant_of_a_decoder_never_looks_ahead(name: str, by: Any) -> None:
    model, inputs = random_model(name), alone(inputs_of(name))
    ids = inputs["input_ids"]
    changed = {"input_ids": torch.cat([ids[:, :-2], (ids[:, -2:] + 7) % 290 + 5], dim=1)}
    with papa.ablated(model, EVERY_HEAD, by=by, data=[inputs_of(name, seed=3)]):
        first, second = answers(model, {"input_ids": ids}), answers(model, changed)
    torch.testing.assert_close(first[:, :-2], second[:, :-2], atol=EXACT, rtol=0)
    assert (first[:, -2:] - second[:, -2:]).abs().max() > 0.1


def test_the_constant_of_an_encoder_does_look_ahead() -> None:
    """The negative control of the law above."""
    model, ids = random_model("bert"), inputs_of("bert")["input_ids"][:1]
    changed = torch.cat([ids[:, :-1], ids[:, :1]], dim=1)
    with papa.ablated(model, EVERY_HEAD, by="average", data=[{"input_ids": ids}]):
        first, second = answers(model, {"input_ids": ids}), answers(model, {"input_ids": changed})
    assert (first[:, :-1] - second[:, :-1]).abs().max() > 0.1


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("by", ["average", "relative"])
def test_a_decoder_generates_with_a_cache_as_without(name: str, by: str) -> None:
    model, length = random_model(name), 6
    inputs, data = (
        {"input_ids": inputs_of(name)["input_ids"][:1]},
        [{"input_ids": inputs_of(name, 4, 3, 20)["input_ids"]}],
    )
    options = {
        "max_new_tokens": length,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    own = torch.stack(model.generate(**inputs, **options).logits)
    with papa.ablated(model, EVERY_HEAD, by=by, data=data):
        fast = torch.stack(model.generate(**inputs, **options).logits)
        plain = torch.stack(model.generate(**inputs, **options, use_cache=False).logits)
    torch.testing.assert_close(fast, plain, atol=EXACT, rtol=0)
    assert (fast[0] - own[0]).abs().max() > 0.1


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("by", ["constants", "reused"])
def test_the_packed_way_gives_the_same_states(name: str, by: str) -> None:
    """The same heads by the fast way, in which padding never reaches the encoder."""
    model = random_model(name)
    matrices = torch.rand(LAYERS, HEADS, SLOTS, SLOTS, generator=torch.Generator().manual_seed(2))
    if name == "modernbert":
        # Its other layers see a window; averages of theirs are zero outside of it.
        distances = torch.arange(SLOTS)[:, None] - torch.arange(SLOTS)
        matrices[1:] *= distances.abs() <= 3
    constants = ConstantMatrices(matrices, torch.ones(SLOTS, SLOTS, dtype=torch.bool), "average")
    inputs, encoder = some_inputs(1, pad=model.config.pad_token_id), Encoder(model)
    padded = {"input_ids": inputs.input_ids, "attention_mask": inputs.attention_mask.long()}
    for heads in (SOME_HEADS, [(layer, head) for layer in EVERY_HEAD for head in range(HEADS)]):
        substitute = constants if by == "constants" else Reused()
        with torch.no_grad(), replaced(encoder, substitute, heads):
            packed = encoder.token_states(inputs.compact())[-1]
        with papa.ablated(model, heads, by=constants if by == "constants" else by):
            torch.testing.assert_close(answers(model, padded), packed, atol=EXACT, rtol=0)
        with papa.ablated(model, heads, by=matrices.roll(1, dims=-1)):
            assert (answers(model, padded) - packed).abs().max() > 0.1


@pytest.mark.parametrize("name", ["bert", "vit", "llama"])
def test_zeros_are_what_a_pruned_head_leaves(name: str) -> None:
    """Columns of the output map that read the head are set to zero in a copy of the model."""
    model, inputs = random_model(name), inputs_of(name)
    pruned = random_model(name)
    width = pruned.config.hidden_size // HEADS
    maps = {
        "bert": "attention.output.dense",
        "vit": "attention.o_proj",
        "llama": "self_attn.o_proj",
    }
    outputs = [part for key, part in pruned.named_modules() if key.endswith(maps[name])]
    for layer, head in SOME_HEADS:
        outputs[layer].weight.data[:, head * width : (head + 1) * width] = 0
    with papa.ablated(model, SOME_HEADS):
        torch.testing.assert_close(
            answers(model, inputs), answers(pruned, inputs), atol=EXACT, rtol=0
        )
