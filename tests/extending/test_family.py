"""An encoder family is one entry of papa/models/supported.py."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from papa.errors import EncoderError
from papa.heads.constants import ConstantMatrices
from papa.heads.replacement import replaced
from papa.models import supported
from papa.models.dispatch import Dispatch, attend, split_heads
from papa.models.encoder import Encoder
from papa.models.supported import Family
from tests.heads.cases import HALF, distance
from tests.models.inputs import SLOTS, some_inputs
from tests.plain import plainly, with_constants

LAYERS, HEADS, WIDTH = 3, 4, 32


class Attention(nn.Module):
    """Somebody's own attention, which PAPA knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dropout = nn.Dropout(0.0)

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        query, key, value = (
            linear(states).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear in (self.queries, self.keys, self.values)
        )
        scores = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        masked = scores.masked_fill(~real[:, None, None, :], -torch.inf)
        matrices = self.dropout(masked.softmax(dim=-1))
        return (matrices @ value).transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Attention and normalisation alone."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH}
        self.config = PretrainedConfig(**sizes)
        self.config.model_type = "bare"
        self.words, self.places = nn.Embedding(300, WIDTH), nn.Embedding(SLOTS, WIDTH)
        self.blocks = nn.ModuleList(Attention() for _ in range(LAYERS))

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, real: Tensor | None = None, **_: object
    ) -> Any:
        states = [self.words(input_ids) + self.places(position_ids)]
        for block in self.blocks:
            states.append(nn.functional.layer_norm(states[-1] + block(states[-1], real), (WIDTH,)))
        return SimpleNamespace(hidden_states=states)


def handing_over(module: Attention, states: Tensor, real: None) -> Tensor:
    query, key, value = (
        split_heads(linear(states), WIDTH // HEADS)
        for linear in (module.queries, module.keys, module.values)
    )
    return attend(module, query, key, value)[0].flatten(2)


def prepare(model: Model, dispatch: Dispatch) -> None:
    for block in model.blocks:
        block.forward = partial(handing_over, block)  # type: ignore[method-assign]


BARE = Family(
    name="Bare",
    model_types=("bare",),
    layers=lambda model: model.blocks,
    attention="",
    projections=("queries", "keys"),
    prepare=prepare,
    note="absolute positions are slots",
)


def test_a_family_that_is_named_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Model().double().eval()
    plain = copy.deepcopy(model)
    unknown = "architecture 'bare' is not supported: use one of bert, roberta"
    with pytest.raises(EncoderError, match=unknown):
        Encoder(copy.deepcopy(model))

    monkeypatch.setattr(supported, "FAMILIES", (*supported.FAMILIES, BARE))
    encoder, inputs = Encoder(model), some_inputs(1)
    batch = inputs.compact()
    everywhere = torch.ones(SLOTS, SLOTS, dtype=torch.bool)
    constants = ConstantMatrices(torch.rand(LAYERS, HEADS, SLOTS, SLOTS), everywhere, "average")

    def padded() -> list[Tensor]:
        output = plain(inputs.input_ids, torch.arange(SLOTS)[None], inputs.attention_mask)
        return [states[inputs.attention_mask] for states in output.hidden_states]

    with torch.no_grad():
        assert distance(encoder.token_states(batch), padded()) < 1e-6
        with plainly(plain.blocks, with_constants(constants.matrices, HALF, inputs.attention_mask)):
            expected = padded()
        with replaced(encoder, constants, HALF):
            assert distance(encoder.token_states(batch), expected) < 1e-6
        assert distance(padded(), expected) > 0.05
