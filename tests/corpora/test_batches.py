"""Tokens of a batch packed and unpacked."""

from __future__ import annotations

import numpy as np
import torch

from papa.corpora.batches import MicroBatch
from papa.corpora.ragged import PackedTokens
from tests.encoders.inputs import some_inputs


def batch_of(mask: torch.Tensor) -> MicroBatch:
    lengths, tokens = mask.sum(dim=1).numpy(), np.arange(int(mask.sum()))
    slot_ids = mask.nonzero()[:, 1].numpy()
    return MicroBatch.of(np.arange(len(mask)), PackedTokens(tokens, slot_ids, tokens, lengths, lengths - 1))


def test_pack_and_unpack_are_inverse_on_tokens() -> None:
    batch = some_inputs(1, (3, 9, 5), second=(6, 2, 1)).compact()
    mask = batch.attention_mask
    states = torch.randn(*mask.shape, 4)
    packed = batch.pack(states)
    assert torch.equal(packed[0], states[mask])
    assert torch.equal(batch.unpack(packed)[mask], states[mask])
    assert torch.equal(batch.pack(batch.unpack(packed)), packed)
    assert torch.equal(batch.column_ids, mask.nonzero()[:, 1])
    assert torch.equal(batch.inputs_of_tokens, mask.nonzero()[:, 0])
    assert torch.equal(batch.positions_in_input, (mask.cumsum(dim=1) - 1)[mask])


def test_a_place_without_a_token_holds_another_tokens_states() -> None:
    mask = torch.tensor([[False, True], [True, False]])
    unpacked = batch_of(mask).unpack(torch.tensor([[[1.0], [2.0]]]))
    assert unpacked[mask].tolist() == [[1.0], [2.0]]
    assert set(unpacked[~mask].flatten().tolist()) <= {1.0, 2.0}


def test_without_padding_nothing_is_moved() -> None:
    states = torch.randn(2, 3, 4)
    batch = batch_of(torch.ones(2, 3, dtype=torch.bool))
    assert batch.dense
    assert batch.pack(states).data_ptr() == states.data_ptr() == batch.unpack(states.view(1, 6, 4)).data_ptr()


def test_no_gradient_comes_from_places_without_a_token() -> None:
    batch = batch_of(torch.tensor([[True, True, False], [True, False, True]]))
    tokens = torch.randn(1, 4, 2, requires_grad=True)
    batch.pack(batch.unpack(tokens)).sum().backward()
    assert tokens.grad is not None
    assert torch.equal(tokens.grad, torch.ones(1, 4, 2))


def test_columns_are_the_slots_that_occur() -> None:
    tokens = PackedTokens(
        input_ids=np.array([101, 102, 101, 9, 102]),
        slot_ids=np.array([0, 7, 0, 1, 7]),
        token_type_ids=np.zeros(5, np.int64),
        lengths=np.array([2, 3]),
        first_lengths=np.array([0, 1]),
    )
    batch = MicroBatch.of(np.array([4, 2]), tokens)
    assert batch.columns.tolist() == [0, 1, 7]
    assert batch.attention_mask.tolist() == [[True, False, True], [True, True, True]]
    assert batch.slot_ids.tolist() == [0, 7, 0, 1, 7]
