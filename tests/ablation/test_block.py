"""The block itself: how heads and substitutes are named, what is refused, and what is
left behind.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AttentionInterface,
    CLIPConfig,
    CLIPModel,
    GptOssConfig,
    GptOssForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    MPNetConfig,
    MPNetModel,
    T5Config,
    T5Model,
    WhisperConfig,
    WhisperModel,
)

import papa
from papa.errors import PapaError
from tests.ablation.models import IMAGES, SIZES, WHISPER, answers, inputs_of, random_model

HEADS = [(0, 1), (2, 3)]
IDENTITY = torch.eye(64).expand(3, 4, 64, 64)


def refusal(model: Any, heads: Any = (), **options: Any) -> str:
    with pytest.raises(PapaError) as error, papa.ablated(model, heads, **options):
        pytest.fail("the block was entered")
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "heads",
    [
        {0: [1], 2: [3]},
        torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]),
        np.array([[1.0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]),
    ],
    ids=["as prune_heads took them", "as head_mask took them", "array"],
)
def test_heads_may_be_named_in_three_ways(heads: Any) -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    with papa.ablated(model, HEADS):
        expected = answers(model, inputs)
    with papa.ablated(model, heads):
        assert torch.equal(answers(model, inputs), expected)
    with papa.ablated(model, HEADS[:1]):
        assert not torch.equal(answers(model, inputs), expected)


def test_a_function_gives_the_matrix_of_each_head() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    asked: set[tuple[int, int, int]] = set()

    def previous(layer: int, head: int, slots: int) -> torch.Tensor:
        asked.add((layer, head, slots))
        return torch.eye(slots).roll(-1, dims=1)

    with papa.ablated(model, HEADS, by=previous):
        by_function = answers(model, inputs)
    assert asked == {(0, 1, 9), (2, 3, 9)}
    with papa.ablated(model, HEADS, by=torch.eye(9).roll(-1, dims=1).expand(3, 4, 9, 9).numpy()):
        torch.testing.assert_close(answers(model, inputs), by_function)


def test_what_is_impossible_is_one_sentence() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    assert "there is no head (3, 0)" in refusal(model, [(3, 0)])
    assert "there is no head (0, 4)" in refusal(model, {0: [4]})
    assert "there is no head (7,)" in refusal(model, [(7,)])
    assert "expected (3, 4)" in refusal(model, torch.ones(4, 3))
    for fraction in (0.5, float("nan")):
        assert "no other value" in refusal(model, torch.full((3, 4), fraction))
    assert "there is no substitute 'averge' (known: average" in refusal(model, HEADS, by="averge")
    assert "data holds no batch" in refusal(model, HEADS, by="average")
    assert "numbers [3, 4, 8, 8]" in refusal(model, HEADS, by=torch.ones(2, 4, 8, 8))
    short = papa.ablated(model, HEADS, by=torch.ones(3, 4, 8, 8))
    with (
        pytest.raises(
            PapaError, match="a text has 9 tokens and the constant matrices have 8 slots"
        ),
        short,
    ):
        answers(model, inputs)
    wrong = papa.ablated(model, HEADS, by=lambda layer, head, slots: torch.ones(2, 2))
    with pytest.raises(PapaError, match="a matrix of \\(2, 2\\), expected \\(9, 9\\)"), wrong:
        answers(model, inputs)


def test_a_model_whose_attention_cannot_be_reached_is_refused_by_name() -> None:
    small = dict.fromkeys(("d_model", "d_ff"), 16) | {"vocab_size": 50, "d_kv": 8}
    whisper = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    clip = CLIPConfig(text_config={**SIZES, "vocab_size": 50}, vision_config=IMAGES)
    assert "MPNetModel (mpnet) computes attention outside" in refusal(
        MPNetModel(MPNetConfig(**SIZES, vocab_size=50))
    )
    assert "T5Model" in refusal(T5Model(T5Config(**small, num_layers=1, num_heads=2)))
    assert "model.get_encoder()" in refusal(
        WhisperModel(
            WhisperConfig(**whisper, **WHISPER, d_model=16, encoder_layers=1, decoder_layers=1)
        )
    )
    assert "CLIPModel has several kinds of attention" in refusal(CLIPModel(clip))
    assert "found a Linear" in refusal(torch.nn.Linear(2, 2))
    with warnings.catch_warnings(action="ignore"):
        compiled = torch.compile(random_model("bert"))
    assert "compiled by torch.compile" in refusal(compiled)
    sinks = GptOssForCausalLM(
        GptOssConfig(
            **{**SIZES, "vocab_size": 50}, num_key_value_heads=2, head_dim=8, num_local_experts=2
        )
    )
    with pytest.raises(PapaError, match="'s_aux', which would be lost"), papa.ablated(sinks, []):
        sinks(torch.tensor([[3, 4]]))


@pytest.mark.parametrize("how", ["in place", "around"])
def test_compiled_passes_follow_each_block(how: str) -> None:
    """The answers of a block are its own, whatever was compiled before."""
    model, inputs = random_model("bert"), inputs_of("bert")
    blocks: list[list[tuple[int, int]]] = [[(0, 1)], [(1, 2)], [(0, 0), (1, 3)]]
    expected = []
    for heads in blocks:
        with papa.ablated(model, heads):
            expected.append(answers(model, inputs))
    torch._dynamo.reset()
    if how == "in place":
        model.compile(backend="eager")
    compiled = torch.compile(lambda: answers(model, inputs), backend="eager")
    call = compiled if how == "around" else lambda: answers(model, inputs)
    call()
    for heads, right in zip(blocks, expected, strict=True):
        with papa.ablated(model, heads):
            torch.testing.assert_close(call(), right)
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)


def test_attention_of_somebody_else_is_refused() -> None:
    def sigmoid(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, None]:
        weights = (query @ key.transpose(-1, -2)).sigmoid()
        return (weights @ value).transpose(1, 2).contiguous(), None

    AttentionInterface.register("sigmoid", sigmoid)
    model = random_model("bert")
    model.set_attn_implementation("sigmoid")
    assert "attention function is 'sigmoid'" in refusal(model)
    model = random_model("bert")
    for layer in model.encoder.layer:
        layer.attention.self.forward = lambda states, *_, **__: (states, None)
    with pytest.raises(PapaError, match="no head was replaced"), papa.ablated(model, HEADS):
        answers(model, inputs_of("bert"))


def test_a_mixture_of_experts_is_a_decoder_like_others() -> None:
    sizes = {**SIZES, "vocab_size": 50, "num_key_value_heads": 2, "num_local_experts": 2}
    model = MixtralForCausalLM(MixtralConfig(**sizes)).eval()
    inputs = {"input_ids": torch.tensor([[3, 4, 5, 6]])}
    before = answers(model, inputs)
    with papa.ablated(model, []):
        torch.testing.assert_close(answers(model, inputs), before)
    with papa.ablated(model, [(0, 0)]):
        assert not torch.allclose(answers(model, inputs), before, atol=1e-3)


def test_an_exception_inside_leaves_the_model_whole() -> None:
    model, inputs = random_model("albert"), inputs_of("albert")
    before, hooks = answers(model, inputs), len(model._forward_pre_hooks)
    with pytest.raises(KeyError), papa.ablated(model, HEADS):
        raise KeyError
    assert torch.equal(answers(model, inputs), before)
    assert model.config._attn_implementation == "sdpa"
    assert len(model._forward_pre_hooks) == hooks


def test_a_pass_that_fails_does_not_shift_the_layers_of_shared_weights() -> None:
    model, inputs = random_model("albert"), inputs_of("albert")
    with papa.ablated(model, HEADS):
        expected = answers(model, inputs)

    def fail(*_: object) -> None:
        raise KeyError

    with papa.ablated(model, HEADS):
        hook = (
            model.encoder.albert_layer_groups[0]
            .albert_layers[0]
            .ffn.register_forward_pre_hook(fail)
        )
        with pytest.raises(KeyError):
            answers(model, inputs)
        hook.remove()
        assert torch.equal(answers(model, inputs), expected)


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2"])
def test_an_inner_block_takes_its_heads_from_the_outer(family: str) -> None:
    model, inputs = random_model(family), inputs_of(family)
    plain = answers(model, inputs)
    first, second = (0, 1), (2, 3)
    with papa.ablated(model, [second], "zeros"):
        alone = answers(model, inputs)
    with papa.ablated(model, [first, second], "zeros"):
        both = answers(model, inputs)
    with papa.ablated(model, [first], "zeros"):
        outer = answers(model, inputs)
        with papa.ablated(model, [second], "zeros"):
            assert torch.equal(answers(model, inputs), both)
        assert torch.equal(answers(model, inputs), outer)
    assert torch.equal(answers(model, inputs), plain)
    assert not any(torch.equal(both, other) for other in (plain, outer, alone))
    with papa.ablated(model, [first, second], "zeros"), papa.ablated(model, [second], IDENTITY):
        again = answers(model, inputs)
    with papa.ablated(model, [first], "zeros"), papa.ablated(model, [second], IDENTITY):
        assert torch.equal(answers(model, inputs), again)
    assert not torch.equal(again, both)


def test_two_threads_use_two_models_at_once() -> None:
    models = [random_model("bert", seed) for seed in range(2)]
    inputs, found = inputs_of("bert"), {}
    for index, model in enumerate(models):
        with papa.ablated(model, [(0, index)]):
            found[index] = answers(model, inputs)
    both_inside, same = threading.Barrier(2), {}

    def run(index: int) -> None:
        with papa.ablated(models[index], [(0, index)]):
            both_inside.wait()
            same[index] = torch.equal(answers(models[index], inputs), found[index])
            both_inside.wait()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == {0: True, 1: True}


def test_another_model_of_the_same_configuration_object_answers_as_ever() -> None:
    model = random_model("bert")
    other = type(model)(model.config).eval().double()
    before = answers(other, inputs_of("bert"))
    with papa.ablated(model, HEADS):
        torch.testing.assert_close(answers(other, inputs_of("bert")), before, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_half_precision_stays_half(name: str) -> None:
    model, inputs = random_model(name), inputs_of(name)
    with papa.ablated(model, HEADS, by="average", data=[inputs]):
        exact = answers(model, inputs)
    half = model.bfloat16()
    with papa.ablated(half, HEADS, by="average", data=[inputs]):
        found = answers(half, inputs)
    assert found.dtype == torch.bfloat16
    assert (
        torch.nn.functional.cosine_similarity(found.double().flatten(), exact.flatten(), dim=0)
        > 0.95
    )


def test_gradients_pass_through_constant_heads() -> None:
    model, inputs = random_model("bert"), inputs_of("bert")
    with papa.ablated(model, {layer: range(4) for layer in range(3)}, by="average", data=[inputs]):
        model(**inputs).last_hidden_state.square().sum().backward()
    first = model.encoder.layer[0].attention.self
    assert first.value.weight.grad.abs().sum() > 0
    assert first.query.weight.grad is None or float(first.query.weight.grad.abs().sum()) == 0
