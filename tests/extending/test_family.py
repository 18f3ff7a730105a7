"""An encoder family is one entry of papa/models/supported.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from papa.errors import EncoderError
from papa.heads.replacement import replaced
from papa.models import supported
from papa.models.encoder import Encoder
from tests.heads.cases import HALF, Case, distance
from tests.make import random_model

BARE = replace(supported.BERT, name="Bare", model_types=("bare",))


@torch.no_grad()
def test_a_family_that_is_named_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    case, model = Case("bert"), random_model("bert")
    model.config.model_type = "bare"
    with pytest.raises(EncoderError, match="architecture 'bare' is not supported: use one of bert"):
        Encoder(model)

    monkeypatch.setattr(supported, "FAMILIES", (*supported.FAMILIES, BARE))
    encoder, inputs, constants = Encoder(model), case.inputs(1), case.constants()
    own = case.states(inputs)
    with replaced(case.encoder, constants, HALF), replaced(encoder, constants, HALF):
        found = encoder.token_states(inputs.compact())
        assert distance(found, case.states(inputs)) == 0
    assert distance(found, own) > 0.05, "negative control"
