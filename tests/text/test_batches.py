"""Batches: every real token once, at its slot, almost no padding; tokens packed and unpacked."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase as Tokenizer

from papa.text.batches import LARGEST_BATCH, MicroBatch, micro_batch, micro_batches
from papa.text.corpus import TokenisedSplit
from papa.text.layout import PackedTokens
from tests.models.inputs import some_inputs
from tests.text.conftest import PAIR, REVIEWS, Build, Make

KINDS = {"reviews": REVIEWS, "review_pairs": {**PAIR, "slots": 256}}


@pytest.fixture(params=KINDS)
def split(request: pytest.FixtureRequest, real: Make, bert: Tokenizer, corpus_of: Build) -> Any:
    task = real(request.param, "validation", settings=KINDS[request.param], train_rows=277)
    return corpus_of(task, bert, shard_rows=100).split("train")


def tokens_of(rows: Any, *token_columns: object) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in (rows, *token_columns)), strict=True))


def in_batches(batches: Iterable[MicroBatch]) -> list[tuple[int, ...]]:
    tokens: list[tuple[int, ...]] = []
    for batch in batches:
        rows = batch.rows[batch.inputs_of_tokens]
        tokens += tokens_of(rows, batch.slot_ids, batch.input_ids, batch.token_type_ids)
    return sorted(tokens)


def token_capacity(batches: Iterable[MicroBatch]) -> int:
    return sum(math.prod(batch.shape) for batch in batches)


def test_every_real_token_appears_once_at_its_slot(split: TokenisedSplit) -> None:
    batches = list(micro_batches(split, None, 2048))
    tokens = split.tokens()
    rows = np.repeat(split.rows, split.lengths)
    expected = tokens_of(rows, tokens.slot_ids, tokens.input_ids, tokens.token_type_ids)
    shards = [split.shard(index) for index in range(len(split.shards))]
    sharded = [batch for shard in shards for batch in micro_batches(shard, None, 512)]
    assert in_batches(batches) == in_batches(sharded) == expected
    # The control: a batch whose columns stand for other slots is noticed.
    moved = replace(batches[-1], columns=batches[-1].columns.flip(0))
    assert in_batches([*batches[:-1], moved]) != expected


@pytest.mark.parametrize("batch_tokens", [1, 512, 2048])
def test_batches_fill_their_budget(split: TokenisedSplit, batch_tokens: int) -> None:
    batches = list(micro_batches(split, None, batch_tokens))
    for batch in batches:
        assert len(batch.rows) == 1 or math.prod(batch.shape) <= batch_tokens
        assert batch.attention_mask.any(0).all(), "no column is all padding"
    for batch, following in pairwise(batches):
        longer = micro_batch(split, [*batch.rows.tolist(), int(following.rows[0])])
        assert math.prod(longer.shape) > batch_tokens or len(longer.rows) > LARGEST_BATCH
    assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == split.rows.tolist()


def test_rows_of_like_length_go_together(split: TokenisedSplit) -> None:
    batches = list(micro_batches(split, None, 512))
    assert token_capacity(batches) < 1.25 * int(split.lengths.sum()), "almost no padding is left"
    # The control: the same rows unsorted leave much more.
    unsorted = [micro_batch(split, rows) for rows in np.array_split(split.rows, len(batches))]
    assert token_capacity(unsorted) > 1.4 * int(split.lengths.sum())
    rows = np.random.default_rng(0).permutation(len(split))[:50]
    orders = [micro_batches(split, chosen_rows, 2048) for chosen_rows in (rows, rows[::-1])]
    first, reversed_order = ([batch.rows.tolist() for batch in batches] for batches in orders)
    assert first == reversed_order, "the same rows give the same batches"
    assert sorted(row for batch in first for row in batch) == sorted(rows.tolist())


def full() -> MicroBatch:
    ids = np.arange(6)
    slots = np.tile(np.arange(3), 2)
    return MicroBatch.from_tokens(
        np.arange(2), PackedTokens(ids, slots, ids, np.array([3, 3]), np.array([1, 1]))
    )


@pytest.mark.parametrize(
    "batch", [full(), some_inputs(1, (3, 9, 5), second=(6, 2, 1)).compact()], ids=["full", "padded"]
)
def test_packing_inverts_unpacking_in_values_as_in_gradients(batch: MicroBatch) -> None:
    mask = batch.attention_mask
    tokens = len(batch.column_ids)
    assert batch.dense == bool(mask.all())
    states = torch.randn(*mask.shape, 4, dtype=torch.float64, requires_grad=True)
    packed = batch.pack(states)
    assert torch.equal(packed[0], states[mask])
    assert torch.equal(batch.unpack(packed)[mask], states[mask])
    assert torch.equal(batch.column_ids, mask.nonzero()[:, 1])
    assert torch.equal(batch.inputs_of_tokens, mask.nonzero()[:, 0])
    heads = torch.randn(1, 3, tokens, 2, dtype=torch.float64, requires_grad=True)
    unpacked = batch.unpack(heads)
    assert all(torch.equal(unpacked[:, head][mask], heads[0, head]) for head in range(3))
    assert torch.equal(batch.pack(unpacked), heads)
    real_tokens = mask[:, None, :, None]
    assert torch.autograd.gradcheck(
        lambda values: batch.pack(batch.unpack(values) * real_tokens), [heads]
    )
