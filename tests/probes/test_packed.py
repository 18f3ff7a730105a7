"""Packed features: rows are found, copied and packed from real batches."""

from __future__ import annotations

import torch

from papa.corpora import TokenisedCorpus
from papa.corpora.batches import micro_batch
from papa.encoders.encoder import Encoder
from papa.probes.packed import PackedFeatures, pack_states


def three_rows(token_labels: bool) -> PackedFeatures:
    """Rows of 2, 0 and 3 tokens."""
    return PackedFeatures(
        values=torch.arange(5.0)[:, None, None].expand(5, 2, 3).clone(),
        offsets=torch.tensor([0, 2, 2, 5]),
        slot_ids=torch.tensor([0, 1, 0, 4, 5]),
        labels=torch.arange(10, 15) if token_labels else torch.arange(10, 13),
        token_labels=token_labels,
    )


def test_tokens_are_found_in_the_order_of_rows() -> None:
    tokens, positions = three_rows(True).tokens_of(torch.tensor([2, 1, 0, 2]))
    assert tokens.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert positions.tolist() == [0, 0, 0, 2, 2, 3, 3, 3]


def test_rows_without_tokens() -> None:
    tokens, positions = three_rows(True).tokens_of(torch.tensor([1, 1]))
    assert tokens.tolist() == positions.tolist() == []


def test_selected_rows_keep_their_tokens_and_labels() -> None:
    chosen = torch.tensor([2, 1])
    by_token = three_rows(True).select(chosen)
    assert by_token.offsets.tolist() == [0, 3, 3]
    assert by_token.values[:, 0, 0].tolist() == [2, 3, 4]
    assert by_token.slot_ids.tolist() == [0, 4, 5]
    assert by_token.labels.tolist() == [12, 13, 14]
    assert three_rows(False).select(chosen).labels.tolist() == [12, 11]


def test_gradients_flow_through_a_packed_batch(
    encoder: Encoder, corpora: dict[str, TokenisedCorpus]
) -> None:
    corpus = corpora["cola"]
    batch = micro_batch(corpus.split("train"), [3, 5])
    token_states = [layer.requires_grad_() for layer in encoder.token_states(batch)]
    count = int(batch.attention_mask.sum())
    kept = torch.arange(count) % 3 > 0
    packed = pack_states(token_states, kept.numpy())
    assert packed.shape == (int(kept.sum()), encoder.layers + 1, encoder.width)
    assert pack_states(token_states, None).shape == (count, encoder.layers + 1, encoder.width)
    packed.sum().backward()
    for layer in token_states:
        assert layer.grad is not None
        assert torch.equal(layer.grad[..., 0], kept.float())
