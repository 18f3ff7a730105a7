"""Relative positions of slots in DeBERTa: which rows occur, what they cost, and the convolution
over slots.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from papa.attention.constants import control
from papa.attention.mixing import mixed
from papa.encoders.deberta import SlotConvolution
from papa.encoders.dispatch import Dispatch
from papa.encoders.encoder import Encoder
from tests.encoders.inputs import SLOTS, some_inputs
from tests.encoders.models import random_model


@pytest.mark.parametrize("variant", ["deberta_v3", "deberta_v2_near", "deberta_near"])
def test_relative_positions_of_slots_are_those_of_the_padded_sequence(variant: str) -> None:
    model = random_model(variant)
    stock = copy.deepcopy(model).encoder
    encoder, batch = Encoder(model), some_inputs(1).compact()
    encoder.dispatch.begin(batch)
    running: Any = encoder.model
    pairs, embeddings = running.encoder.get_rel_pos(None), running.encoder.get_rel_embedding()

    everywhere = stock.get_rel_pos(torch.zeros(1, SLOTS, 1))[0]
    span = stock.rel_embeddings.num_embeddings // 2
    rows = (everywhere + span).clamp(0, 2 * span - 1)[batch.columns[:, None], batch.columns]
    assert torch.equal(embeddings[pairs], stock.get_rel_embedding()[rows])
    columns = (everywhere + span).clamp(0, 2 * span - 1)[: len(batch.columns), : len(batch.columns)]
    assert not torch.equal(embeddings[pairs], stock.get_rel_embedding()[columns])


def test_only_relative_positions_that_occur_are_projected() -> None:
    encoder, batch = Encoder(random_model("deberta_v2_xlarge")), some_inputs(1).compact()
    projected: list[int] = []
    for attention in encoder.family.attentions(encoder.model):
        attention.pos_key_proj.register_forward_hook(
            lambda _, inputs, __: projected.append(inputs[0].shape[1])
        )
    encoder.hidden_states(batch)
    buckets = build_relative_position(torch.zeros(1, SLOTS, 1), torch.zeros(1, SLOTS, 1), 8, 32)[0]
    occurring = (buckets[batch.columns[:, None], batch.columns] + 8).clamp(0, 15).unique()
    assert projected == [len(occurring)] * 3
    assert len(occurring) < 16


def test_relative_positions_follow_the_batch() -> None:
    """Two batches of one shape at other slots, one after the other: nothing is remembered from the
    first.
    """
    encoder = Encoder(random_model("deberta_v3"))
    batch = some_inputs(1).compact()
    squeezed = replace(batch, columns=torch.arange(len(batch.columns)))
    first = encoder.hidden_states(batch)[-1]
    between = encoder.hidden_states(squeezed)[-1]
    assert torch.equal(encoder.hidden_states(batch)[-1], first)
    assert float((between - first).abs().max()) > 0.01


@pytest.mark.parametrize("kernel", [3, 5])
def test_convolution_over_slots_equals_padded(kernel: int) -> None:
    torch.manual_seed(0)
    convolution = torch.nn.Conv1d(6, 6, kernel, padding=kernel // 2)
    inputs = some_inputs(1, (3, 9), second=(2, 5))
    batch = inputs.compact()
    padded = torch.randn(2, 6, SLOTS) * inputs.attention_mask[:, None]
    compact = padded[..., batch.columns]
    dispatch = Dispatch()
    dispatch.begin(batch)

    def packed(states: torch.Tensor) -> torch.Tensor:
        return batch.pack(states.transpose(1, 2)).transpose(1, 2)

    with torch.no_grad():
        expected = convolution(padded)[..., batch.columns]
        found = SlotConvolution(convolution, dispatch)(packed(compact))
        torch.testing.assert_close(found, packed(expected))
        assert float((convolution(compact) - expected).abs().max()) > 0.1
        assert float((convolution(packed(compact)) - packed(expected)).abs().max()) > 0.1


def test_a_batch_seen_without_gradients_may_come_again_with_them() -> None:
    encoder, batch = Encoder(random_model("deberta_v3").float()), some_inputs(1).compact()
    constants = control("toeplitz", encoder.layers, encoder.heads, SLOTS)
    theta = torch.zeros(encoder.layers, encoder.heads, requires_grad=True)
    with torch.inference_mode():
        encoder.hidden_states(batch)
    with mixed(encoder, constants, theta):
        encoder.hidden_states(batch)[-1].square().sum().backward()
    assert theta.grad is not None
    assert bool((theta.grad != 0).all())
