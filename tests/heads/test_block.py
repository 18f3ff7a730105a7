"""The block itself: how heads and substitutes are named, what is refused, and what is
left behind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

import papa
from papa.errors import PapaError
from tests.make import (
    GROUPED,
    IMAGES,
    SIZES,
    WHISPER,
    WORDS,
    Make,
    answers,
    inputs_of,
    model_factory,
    random_model,
)

HEADS = [(0, 1), (2, 3)]
MASK = [[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]
IDENTITY = torch.eye(64).expand(3, 4, 64, 64)
TEXTS = inputs_of("bert")
BERT = partial(random_model, "bert")


def sigmoid(module: Any, query: Any, key: Any, value: Any, *_: object, **__: object) -> Any:
    return ((query @ key.mT).sigmoid() @ value).transpose(1, 2).contiguous(), None


def with_sigmoid() -> Any:
    AttentionInterface.register("sigmoid", sigmoid)
    model = random_model("bert")
    model.set_attn_implementation("sigmoid")
    return model


def bypassing() -> Any:
    model = random_model("bert")
    for layer in model.encoder.layer:
        layer.attention.self.forward = lambda states, *_, **__: (states, None)
    return model


def compiled() -> Any:
    with warnings.catch_warnings(action="ignore"):
        return torch.compile(random_model("bert"))


SPARSE: dict[str, Any] = {**WORDS, "n_routed_experts": 4, "moe_intermediate_size": 16}
CLIP = {"text_config": {**SIZES, "vocab_size": 50}, "vision_config": IMAGES}
IDS = {"input_ids": torch.tensor([[3, 4]])}
REFUSED: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("there is no head (3, 0)", BERT, {"heads": [(3, 0)]}),
    ("there is no head (0, 4)", BERT, {"heads": {0: [4]}}),
    ("there is no head (7,)", BERT, {"heads": [(7,)]}),
    ("expected (3, 4)", BERT, {"heads": torch.ones(4, 3)}),
    ("0 for heads to replace", BERT, {"heads": torch.full((3, 4), 0.5)}),
    ("0 for heads to replace", BERT, {"heads": torch.full((3, 4), torch.nan)}),
    ("'averge'", BERT, {"substitute": "averge"}),
    ("computed from text", BERT, {"substitute": "average"}),
    ("numbers [3, 4, 8, 8]", BERT, {"substitute": torch.ones(2, 4, 8, 8)}),
    (
        "a text has 9 tokens and the constant",
        BERT,
        {"substitute": torch.ones(3, 4, 8, 8), "inputs": TEXTS},
    ),
    (
        "(2, 2)",
        BERT,
        {"substitute": lambda *_: torch.ones(2, 2), "inputs": TEXTS},
    ),
    ("talking heads mix", model_factory("Deberta", **WORDS, talking_head=True), {}),
    ("decoder, encoder", model_factory("Whisper", **WHISPER), {}),
    ("text_model, vision_model", model_factory("CLIP", **CLIP), {}),
    ("text_model, vision_model", model_factory("CLIP", **CLIP), {"part": "audio"}),
    ("text_model, vision_model", model_factory("CLIP", **CLIP), {"part": "model"}),
    ("found a Linear", lambda: torch.nn.Linear(2, 2), {}),
    ("compiled by torch.compile", compiled, {}),
    ("attention function is 'sigmoid'", with_sigmoid, {}),
    ("no head was replaced", bypassing, {"inputs": IDS}),
    ("indices", model_factory("DeepseekV32", "ForCausalLM", **SPARSE), {}),
]


@pytest.mark.parametrize(("sentence", "make", "options"), REFUSED)
def test_what_is_impossible_is_one_sentence(
    sentence: str, make: Callable[[], Any], options: dict[str, Any]
) -> None:
    """When the block is entered, or where ``inputs`` are given when the model is called."""
    model = make()
    arguments = {"heads": HEADS, "substitute": "zeros", **options}
    inputs = arguments.pop("inputs", None)
    call = model if inputs else lambda: pytest.fail("the block was entered")
    with pytest.raises(PapaError) as error, papa.ablated(model, **arguments):
        call(**(inputs or {}))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


LAYERS: dict[str, Any] = {**GROUPED, "num_hidden_layers": 4}
KINDS = ["conv", "full_attention"] * 2
HYBRID = model_factory("Lfm2", "ForCausalLM", **LAYERS, layer_types=KINDS)
BART: dict[str, Any] = {
    "vocab_size": 300,
    "d_model": 32,
    "max_position_embeddings": 64,
    "init_std": 0.35,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_layers": 3,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@contextmanager
def without_head(projection: torch.nn.Module, head: int) -> Iterator[None]:
    """Nothing of one head of width 8 reaches W_O."""

    def zeroed(_: Any, arguments: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        mask = torch.ones(32, dtype=arguments[0].dtype)
        mask[8 * head : 8 * head + 8] = 0
        return (arguments[0] * mask,)

    hook = projection.register_forward_pre_hook(zeroed)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.unchecked
def test_layers_have_the_models_numbers_where_some_have_no_attention() -> None:
    torch.manual_seed(0)
    model = HYBRID().eval().double()
    inputs = {"input_ids": inputs_of("llama")["input_ids"][:1]}
    calls = set[tuple[int, int, int]]()
    mask = torch.ones(4, 4)
    mask[3, 1] = 0

    def zero_matrix(layer: int, head: int, slots: int) -> torch.Tensor:
        calls.add((layer, head, slots))
        return torch.zeros(slots, slots)

    for layer in (1, 3):
        with without_head(model.model.layers[layer].self_attn.out_proj, 1):
            by_hand = answers(model, inputs)
        with papa.ablated(model, {layer: [1]}, substitute="zeros"):
            torch.testing.assert_close(answers(model, inputs), by_hand)
    matrices = torch.ones(4, 4, 9, 9)
    matrices[3, 1] = 0
    for heads, substitute in ((mask, "zeros"), ([(3, 1)], zero_matrix), ([(3, 1)], matrices)):
        with papa.ablated(model, heads, substitute=substitute):
            torch.testing.assert_close(answers(model, inputs), by_hand)
    assert calls == {(3, 1, 9)}
    assert not torch.allclose(answers(model, inputs), by_hand), "negative control"
    with (
        pytest.raises(PapaError, match=r"\(0, 1\)"),
        papa.ablated(model, {0: [1]}, substitute="zeros"),
    ):
        pass
    options: dict[str, Any] = {"substitute": "zeros", "progress": False}
    for method in ("effect", "lambda"):
        scores = papa.head_scores(model, [inputs], method=method, **options)
        assert scores["layer"].unique().tolist() == [1, 3]
        assert {layer for layer, _ in papa.constant_heads(scores, count=8)} == {1, 3}
    orders = ["random", [(3, 1)], scores]
    batches = {"train": [inputs], "validation": [inputs]}
    measured = papa.measure(
        model, batches, orders=orders, keep=[7 / 8, 0], probe_seeds=[0], substitutes=["zeros"],
        progress=False,
    )  # fmt: skip
    constant = {cell.order: heads for cell, heads in measured.constant_heads.items()}
    every_head = tuple((layer, head) for layer in (1, 3) for head in range(4))
    assert set(constant.values()) == {every_head}, "with fraction 0, the last of each order"
    first = [heads for cell, heads in measured.constant_heads.items() if cell.fraction]
    assert ((3, 1),) in first


@pytest.mark.parametrize(
    "make",
    [
        model_factory("Bart", "ForCausalLM", **BART),
        lambda: model_factory("Bart", **BART)().get_decoder(),
        model_factory("BigBirdPegasus", "ForCausalLM", **BART),
    ],
    ids=["causal", "get_decoder", "no is_causal"],
)
def test_cross_attention_of_a_decoder_is_no_layer(make: Make) -> None:
    torch.manual_seed(0)
    model = make().eval().double()
    inputs = {"input_ids": inputs_of("llama")["input_ids"][:1]}
    original = answers(model, inputs)
    for layer in range(3):
        with papa.ablated(model, {layer: [0]}, substitute="zeros"):
            assert (answers(model, inputs) - original).abs().max() > 0.01
    with (
        pytest.raises(PapaError, match=r"\(3, 0\)"),
        papa.ablated(model, {3: [0]}, substitute="zeros"),
    ):
        pass


def test_cross_attention_is_served_where_something_calls_it() -> None:
    torch.manual_seed(0)
    model = model_factory("Bart", **BART)().get_decoder().eval().double()
    states = torch.randn(2, 5, 32, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    inputs = {**inputs_of("llama"), "encoder_hidden_states": states, "encoder_attention_mask": mask}
    original = answers(model, inputs)
    with papa.ablated(model, {}, substitute="zeros"):
        torch.testing.assert_close(answers(model, inputs), original)
    with papa.ablated(model, {1: [2]}, substitute="zeros"):
        replaced_output = answers(model, inputs)
    with without_head(model.layers[1].self_attn.out_proj, 2):
        torch.testing.assert_close(replaced_output, answers(model, inputs))
    assert not torch.allclose(replaced_output, original), "negative control"


def test_what_only_selects_logits_is_no_term_of_attention() -> None:
    model = random_model("llama")
    inputs = inputs_of("llama")
    with torch.no_grad(), papa.ablated(model, HEADS, substitute="zeros"):
        expected = model.model(**inputs).last_hidden_state
        states = model.model(**inputs, logits_to_keep=1).last_hidden_state
    assert torch.equal(states, expected)


@pytest.mark.unchecked
def test_compiled_passes_follow_each_block() -> None:
    """The answers of a block are its own, whatever was compiled before."""
    model = random_model("bert")
    inputs = inputs_of("bert")
    call = torch.compile(lambda: answers(model, inputs), backend="eager")
    call()
    outputs = []
    for heads in ([(0, 1)], [(1, 2)], [(0, 0), (1, 3)]):
        with papa.ablated(model, heads, substitute="zeros"):
            outputs.append(answers(model, inputs))
            torch.testing.assert_close(call(), outputs[-1])
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-3)


def test_heads_may_be_named_in_three_ways_and_matrices_be_a_function() -> None:
    model = random_model("bert")
    calls = set[tuple[int, int, int]]()

    def previous(layer: int, head: int, slots: int) -> torch.Tensor:
        calls.add((layer, head, slots))
        return torch.ones(slots, slots).tril(-1).triu(-1)

    matrices = torch.ones(9, 9).tril(-1).triu(-1).expand(3, 4, 9, 9).numpy()
    as_prune_heads = {0: [1], 2: [3]}
    as_head_mask = torch.tensor(MASK)
    outputs = []
    for heads, matrices_argument in (
        *(
            (heads, "zeros")
            for heads in (HEADS, as_prune_heads, as_head_mask, np.array(MASK, float))
        ),
        *((HEADS, matrices_argument) for matrices_argument in (previous, matrices)),
        (HEADS[:1], "zeros"),
    ):
        with papa.ablated(model, heads, substitute=matrices_argument):
            outputs.append(answers(model, TEXTS))
    *zeros, by_function, by_matrices, first_head = outputs
    assert all(torch.equal(output, zeros[0]) for output in zeros)
    assert calls == {(layer, head, slots) for layer, head in HEADS for slots in (6, 9)}
    torch.testing.assert_close(by_matrices, by_function)
    assert not torch.equal(by_function, zeros[0])
    assert not torch.equal(first_head, zeros[0])


def test_a_pass_that_fails_shifts_no_layers_of_shared_weights_and_leaves_no_trace() -> None:
    model = random_model("albert")
    inputs = inputs_of("albert")
    before = answers(model, inputs)
    hooks = len(model._forward_pre_hooks)

    def fail(*_: object) -> None:
        raise KeyError

    with papa.ablated(model, HEADS, substitute="zeros"):
        expected = answers(model, inputs)
        layer = model.encoder.albert_layer_groups[0].albert_layers[0]
        hook = layer.ffn.register_forward_pre_hook(fail)
        with pytest.raises(KeyError):
            answers(model, inputs)
        hook.remove()
        assert torch.equal(answers(model, inputs), expected)
    with pytest.raises(KeyError), papa.ablated(model, HEADS, substitute="zeros"):
        raise KeyError
    assert torch.equal(answers(model, inputs), before)
    assert model.config._attn_implementation == "sdpa"
    assert len(model._forward_pre_hooks) == hooks


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2", "deberta_v3"])
def test_an_inner_block_takes_its_heads_from_the_outer(family: str) -> None:
    model = random_model(family)
    inputs = inputs_of(family)
    first = (0, 1)
    second = (2, 3)
    outputs = [answers(model, inputs)]
    for heads in ([first], [second], [first, second]):
        with papa.ablated(model, heads, substitute="zeros"):
            outputs.append(answers(model, inputs))
    plain, of_first, of_second, both = outputs
    with papa.ablated(model, [first], substitute="zeros"):
        with papa.ablated(model, [second], substitute="zeros"):
            assert torch.equal(answers(model, inputs), both)
        assert torch.equal(answers(model, inputs), of_first)
    assert torch.equal(answers(model, inputs), plain)
    assert not any(torch.equal(both, single) for single in (plain, of_first, of_second))
    with (
        papa.ablated(model, [first, second], substitute="zeros"),
        papa.ablated(model, [second], substitute=IDENTITY),
    ):
        nested = answers(model, inputs)
    with (
        papa.ablated(model, [first], substitute="zeros"),
        papa.ablated(model, [second], substitute=IDENTITY),
    ):
        assert torch.equal(answers(model, inputs), nested)
    assert not torch.equal(nested, both)


def test_another_model_of_the_same_configuration_object_answers_as_ever() -> None:
    model = random_model("bert")
    second_model = type(model)(model.config).eval().double()
    before = answers(second_model, inputs_of("bert"))
    with papa.ablated(model, HEADS, substitute="zeros"):
        torch.testing.assert_close(
            answers(second_model, inputs_of("bert")), before, atol=1e-5, rtol=0
        )


def test_half_precision_stays_half() -> None:
    model = random_model("llama")
    inputs = inputs_of("llama")
    with papa.ablated(model, HEADS, substitute="average", data=[inputs]):
        exact = answers(model, inputs)
    half = model.bfloat16()
    with papa.ablated(half, HEADS, substitute="average", data=[inputs]):
        replaced_output = answers(half, inputs)
    assert replaced_output.dtype == torch.bfloat16
    assert (
        torch.cosine_similarity(replaced_output.double().flatten(), exact.flatten(), dim=0) > 0.95
    )


def test_gradients_pass_through_constant_heads() -> None:
    model = random_model("bert")
    inputs = inputs_of("bert")
    with papa.ablated(
        model, {layer: range(4) for layer in range(3)}, substitute="average", data=[inputs]
    ):
        model(**inputs).last_hidden_state.square().sum().backward()
    first = model.encoder.layer[0].attention.self
    assert first.value.weight.grad.abs().sum() > 0
    assert first.query.weight.grad is None or float(first.query.weight.grad.abs().sum()) == 0
