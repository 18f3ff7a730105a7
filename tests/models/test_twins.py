"""Two encoders with the same weights in two threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from papa.heads.replacement import mixed_by
from papa.models.encoder import Encoder
from papa.text.batches import MicroBatch
from tests.heads.cases import Case


def last_states(encoder: Encoder, batch: MicroBatch, case: Case, share: float) -> Tensor:
    shares = torch.full((encoder.layers, encoder.heads), share)
    with torch.no_grad(), mixed_by(encoder, case.constants(), shares):
        return encoder.token_states(batch)[-1]


@pytest.mark.parametrize("family", ["bert", "mpnet", "deberta", "modernbert", "albert"])
def test_twins_with_rules_of_their_own_compute_side_by_side(family: str) -> None:
    case = Case(family)
    encoder = case.encoder
    batch = case.inputs(2).compact()
    twin = encoder.twin()
    shares = (0.2, 0.8)
    expected_states = [last_states(encoder, batch, case, share) for share in shares]
    with ThreadPoolExecutor(2) as executor:
        for _ in range(10):
            results = executor.map(last_states, (encoder, twin), [batch] * 2, [case] * 2, shares)
            for states, expected in zip(results, expected_states, strict=True):
                torch.testing.assert_close(states, expected)
    assert not torch.allclose(*expected_states), "negative control"


def test_twins_share_their_weights() -> None:
    encoder = Case("bert").encoder
    pairs = zip(encoder.model.parameters(), encoder.twin().model.parameters(), strict=True)
    assert all(
        parameter.data_ptr() == twin_parameter.data_ptr() for parameter, twin_parameter in pairs
    )
