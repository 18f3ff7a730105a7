"""Tokens put side by side and apart again."""

from __future__ import annotations

import torch

from papa.encoders.packing import Packing
from tests.encoders.inputs import some_inputs

CPU = torch.device("cpu")


def test_apart_and_together_are_inverse_on_real_tokens() -> None:
    mask = some_inputs(1, (3, 9, 5), second=(6, 2, 1)).compact().attention_mask
    packing = Packing.of(mask, CPU)
    states = torch.randn(*mask.shape, 4)
    together = packing.together(states)
    assert torch.equal(together[0], states[mask])
    assert torch.equal(packing.apart(together)[mask], states[mask])
    assert torch.equal(packing.together(packing.apart(together)), together)
    assert torch.equal(packing.inputs(torch.arange(mask.shape[1])[None])[0], mask.nonzero()[:, 1])


def test_what_stands_where_there_is_no_token_is_another_tokens() -> None:
    mask = torch.tensor([[False, True], [True, False]])
    apart = Packing.of(mask, CPU).apart(torch.tensor([[[1.0], [2.0]]]))
    assert apart[mask].tolist() == [[1.0], [2.0]]
    assert set(apart[~mask].flatten().tolist()) <= {1.0, 2.0}


def test_without_padding_nothing_is_moved() -> None:
    states = torch.randn(2, 3, 4)
    packing = Packing.of(torch.ones(2, 3, dtype=torch.bool), CPU)
    assert packing.places is None
    assert packing.together(states).data_ptr() == states.data_ptr() == packing.apart(states.view(1, 6, 4)).data_ptr()


def test_no_gradient_comes_from_places_without_a_token() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    packing = Packing.of(mask, CPU)
    tokens = torch.randn(1, 3, 2, requires_grad=True)
    packing.together(packing.apart(tokens)).sum().backward()
    assert tokens.grad is not None
    assert torch.equal(tokens.grad, torch.ones(1, 3, 2))
