"""Heads replaced in a user's model: laws for every family, against plain attention."""

from collections.abc import Callable
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

import papa
from papa.heads.attention_layers import attention_layers
from papa.heads.substitutes import Streaming
from papa.models import layer as layers
from tests.heads.substitutes import EXACT, HEADS, LAWS, LAYERS
from tests.make import ABLATED, DECODERS, answers, generated, inputs_of, random_model
from tests.plain import Change, plain_model, plainly

EVERY_HEAD = {layer: list(range(HEADS)) for layer in range(LAYERS)}
SOME_HEADS = [(0, 1), (1, 0), (1, 3), (2, 2)]
OF_THEIR_OWN = ("mpnet", "deberta", "deberta_v3", "deberta_v2_xlarge")
"""Those that do not call transformers' attention interface."""
CAUSAL = "zeros", "mean_output", "average", "relative", Streaming(1, 3)
CONTROL = "bert", "average"
"""The constant of an encoder does look ahead."""


def first_text(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: values[:1] for name, values in inputs.items()}


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=EXACT, rtol=0)


def instead(name_of_law: str, heads: list[tuple[int, int]]) -> Callable[[int], Change]:

    def change(layer: int) -> Change:
        def apply(attention: Tensor) -> Tensor:
            chosen = [head for layer_of_head, head in heads if layer_of_head == layer]
            used = attention.clone()
            used[:, chosen] = LAWS[name_of_law][1](layer, attention)[:, chosen].to(attention.dtype)
            return used

        return apply

    return change


@pytest.mark.parametrize("name", ABLATED)
@pytest.mark.parametrize("name_of_law", LAWS)
def test_replaced_heads_equal_plain(name: str, name_of_law: str) -> None:
    model = random_model(name)
    inputs = inputs_of(name)
    before = answers(model, inputs)
    plain = plain_model(random_model(name))
    if name not in OF_THEIR_OWN:
        plain.set_attn_implementation("plain")
    with plainly(attention_layers(plain).modules, instead(name_of_law, SOME_HEADS)):
        expected = answers(plain, inputs)
    with papa.ablated(model, SOME_HEADS, substitute=LAWS[name_of_law][0]):
        close(answers(model, inputs), expected)
    assert (expected - before).abs().max() > 0.01, "negative control"
    assert torch.equal(answers(model, inputs), before), "the model is as it was"
    with papa.ablated(model, [], substitute="zeros"):
        close(answers(model, inputs), before)


@pytest.mark.parametrize("name", ABLATED)
def test_the_average_over_one_text_gives_that_texts_own_answers(name: str) -> None:
    model = random_model(name)
    inputs = first_text(inputs_of(name))
    before = answers(model, inputs)
    other_text = first_text(inputs_of(name, seed=5))
    with papa.ablated(model, EVERY_HEAD, substitute="average", data=[inputs]):
        close(answers(model, inputs), before)
    with papa.ablated(model, EVERY_HEAD, substitute="average", data=[other_text]):
        assert (answers(model, inputs) - before).abs().max() > 0.1


@pytest.mark.parametrize(("name", "substitute"), [CONTROL, *product(DECODERS, CAUSAL)])
def test_a_constant_of_a_decoder_never_looks_ahead(name: str, substitute: object) -> None:
    model = random_model(name)
    ids = inputs_of(name)["input_ids"][:1]
    changed = {"input_ids": torch.cat([ids[:, :-2], (ids[:, -2:] + 7) % 290 + 5], dim=1)}
    with papa.ablated(model, EVERY_HEAD, substitute=substitute, data=[inputs_of(name, seed=3)]):
        first = answers(model, {"input_ids": ids})
        second = answers(model, changed)
    same = torch.allclose(first[:, :-2], second[:, :-2], atol=EXACT, rtol=0)
    assert same == ((name, substitute) != CONTROL)
    assert (first[:, -2:] - second[:, -2:]).abs().max() > 0.1


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("substitute", ["average", "relative"])
def test_a_decoder_generates_with_a_cache_as_without(name: str, substitute: str) -> None:
    model = random_model(name)
    inputs = {"input_ids": inputs_of(name)["input_ids"][:1]}
    data = [inputs_of(name, 4, 3, 20)]
    original = generated(model, inputs)
    with papa.ablated(model, EVERY_HEAD, substitute=substitute, data=data):
        fast = generated(model, inputs)
        close(fast, generated(model, inputs, use_cache=False))
    assert (fast[0] - original[0]).abs().max() > 0.1


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "bert", "vit", "mpnet"])
@pytest.mark.parametrize(
    "substitute", ["mean_output", "average", "relative", "resampled_output", Streaming(1, 3)]
)
def test_attention_computed_in_parts_is_the_same(name: str, substitute: object) -> None:
    """Parts of two queries, with padding, against all at once."""
    model = random_model(name)
    inputs = inputs_of(name)
    data = [inputs_of(name, 3), inputs_of(name, 4, 3)]
    with papa.ablated(model, SOME_HEADS, substitute=substitute, data=data):
        whole = answers(model, inputs)
    block = papa.ablated(model, SOME_HEADS, substitute=substitute, data=data)
    with patch.object(layers, "_ENTRIES", 2 * 2 * HEADS * 9), block:
        close(answers(model, inputs), whole)
    with papa.ablated(model, SOME_HEADS, substitute="zeros"):
        assert (answers(model, inputs) - whole).abs().max() > 0.1


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_relative_constant_is_the_mean_along_a_diagonal(name: str) -> None:
    """And serves longer texts: a distance that no text had weighs as the farthest that one had."""
    model = random_model(name)
    short = first_text(inputs_of(name, length=5))
    longer = {"input_ids": inputs_of(name, 6, 2, 14)["input_ids"][:1]}
    length = int(short["attention_mask"].sum())
    encoder = name == "bert"
    with torch.no_grad():
        short_output = plain_model(random_model(name))(**short, output_attentions=True)
    attention = short_output.attentions[0][0][:, :length, :length]

    def expected(layer: int, head: int, slots: int, beyond: float = 1.0) -> Tensor:
        """The first column is apart, and an encoder's last: distances end two below it."""
        matrix = torch.zeros(slots, slots, dtype=torch.float64)
        for row, column in np.ndindex(slots, slots):
            distance = max(2 - length, min(row - column, length - 2))
            inner = slice(1 if distance >= 0 else 0, -1 if encoder and distance <= 0 else None)
            weight = beyond if distance != row - column else 1.0
            matrix[row, column] = attention[head].diagonal(-distance)[inner].mean() * weight
        matrix[:, 0] = attention[head, :, 0].mean()
        if encoder:
            matrix[:, -1] = attention[head, :, -1].mean()
        return matrix

    heads = {0: range(HEADS)}
    with papa.ablated(model, heads, substitute="relative", data=[short]):
        replaced_output = answers(model, longer)
    with papa.ablated(model, heads, substitute=expected):
        close(replaced_output, answers(model, longer))
    with papa.ablated(model, heads, substitute=lambda *position: expected(*position, beyond=0.0)):
        assert (replaced_output - answers(model, longer)).abs().max() > 0.01
