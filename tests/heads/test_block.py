"""The block itself: which heads and substitutes it takes, what it refuses and leaves behind."""

import pytest
import torch
from transformers import AttentionInterface, PreTrainedModel

import papa
from papa.errors import PapaError
from tests.make import WORDS, Make, answers, inputs_of, model_factory, random_model

HEADS = [(0, 1), (2, 3)]
TEXTS = inputs_of("bert")
SPARSE = WORDS | {"n_routed_experts": 4, "moe_intermediate_size": 16}


def without_interface() -> PreTrainedModel:
    """A model whose attention function is not one of transformers'."""
    AttentionInterface.register("sigmoid", lambda *_, **__: pytest.fail("it was called"))
    model = random_model("bert")
    model.set_attn_implementation("sigmoid")
    return model


def refusal(model: torch.nn.Module, heads: object = HEADS, substitute: object = "zeros") -> str:
    """The message with which a block is not entered."""
    with pytest.raises(PapaError) as error, papa.ablated(model, heads, substitute=substitute):
        pytest.fail("the block was entered")
    return str(error.value)


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ([(3, 0)], "(3, 0)"),
        ([(7,)], "(7,)"),
        (torch.ones(4, 3), "(3, 4)"),
        (torch.full((3, 4), 0.5), "0 for heads to replace"),
    ],
)
def test_heads_that_the_model_does_not_have_are_refused(heads: object, expected: str) -> None:
    assert expected in refusal(random_model("bert"), heads=heads)


@pytest.mark.parametrize(
    ("substitute", "expected"),
    [("averge", "'averge'"), ("average", "text"), (torch.ones(2, 4, 8, 8), "[3, 4, 8, 8]")],
)
def test_substitutes_that_do_not_fit_are_refused(substitute: object, expected: str) -> None:
    assert expected in refusal(random_model("bert"), substitute=substitute)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (model_factory("Deberta", WORDS | {"talking_head": True}), "talking heads"),
        (lambda: torch.nn.Linear(2, 2), "Linear"),
        (without_interface, "'sigmoid'"),
    ],
)
def test_models_without_replaceable_heads_are_refused(make: Make, expected: str) -> None:
    assert expected in refusal(make())


def test_attention_with_more_than_queries_keys_and_values_is_refused() -> None:
    model = model_factory("DeepseekV32", SPARSE, "ForCausalLM")()
    ids = torch.tensor([[1, 2, 3]])
    model(ids)
    with pytest.raises(PapaError, match="indices"), papa.ablated(model, HEADS, substitute="zeros"):
        model(ids)


@pytest.mark.parametrize(
    ("substitute", "expected"),
    [(torch.ones(3, 4, 8, 8), "9 tokens"), (lambda *_: torch.ones(2, 2), "(2, 2)")],
)
def test_matrices_of_another_length_are_refused(substitute: object, expected: str) -> None:
    model = random_model("bert")
    with pytest.raises(PapaError) as error, papa.ablated(model, HEADS, substitute=substitute):
        answers(model, TEXTS)
    assert expected in str(error.value)


def test_attention_that_bypasses_the_block_is_noticed() -> None:
    model = random_model("bert")
    for layer in model.encoder.layer:
        layer.attention.self.forward = lambda states, *_, **__: (states, None)
    with pytest.raises(PapaError), papa.ablated(model, HEADS, substitute="zeros"):
        model(**TEXTS)


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


def test_matrices_may_be_a_function() -> None:
    model = random_model("bert")
    calls = set[tuple[int, int, int]]()

    def previous(layer: int, head: int, slots: int) -> torch.Tensor:
        calls.add((layer, head, slots))
        return torch.ones(slots, slots).tril(-1).triu(-1)

    with papa.ablated(model, HEADS, substitute=previous):
        by_function = answers(model, TEXTS)
    assert calls == {(layer, head, slots) for layer, head in HEADS for slots in (6, 9)}
    with papa.ablated(model, HEADS, substitute=previous(0, 0, 9).expand(3, 4, 9, 9).numpy()):
        torch.testing.assert_close(answers(model, TEXTS), by_function)


def test_a_failed_pass_leaves_no_trace() -> None:
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


def test_another_model_of_the_same_configuration_object_answers_as_ever() -> None:
    model = random_model("bert")
    second = type(model)(model.config).eval().double()
    before = answers(second, inputs_of("bert"))
    with papa.ablated(model, HEADS, substitute="zeros"):
        torch.testing.assert_close(answers(second, inputs_of("bert")), before, atol=1e-5, rtol=0)


def test_gradients_pass_through_constant_heads() -> None:
    model = random_model("bert")
    inputs = inputs_of("bert")
    every_head = {layer: range(4) for layer in range(3)}
    with papa.ablated(model, every_head, substitute="average", data=[inputs]):
        model(**inputs).last_hidden_state.square().sum().backward()
    first = model.encoder.layer[0].attention.self
    assert first.value.weight.grad.abs().sum() > 0
    assert first.query.weight.grad is None or float(first.query.weight.grad.abs().sum()) == 0
