"""Batches: every real token once, at its slot, almost no padding; tokens packed and unpacked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.corpora import TokenisedCorpus, TokenisedSplit
from papa.corpora.batches import (
    LARGEST_BATCH,
    MicroBatch,
    micro_batch,
    micro_batches,
    rows_of_like_length,
)
from papa.corpora.ragged import PackedTokens
from papa.encoders.reference import EncoderReference
from tests.corpora.conftest import PAIR, Build, Make, corpus_maker, task_maker
from tests.encoders.inputs import some_inputs


@pytest.fixture(scope="module")
def whole(
    shared: Path, bert: Any, encoder: EncoderReference, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., TokenisedCorpus]:
    """All of a corpus, tokenised once."""

    def build(name: str, **options: Any) -> TokenisedCorpus:
        folder, source = tmp_path_factory.mktemp(name), shared / "data" / name
        task = task_maker(folder)(source / "train.jsonl", source / "validation.jsonl", **options)
        return corpus_maker(folder, encoder)(task, bert)

    return build


@pytest.fixture(scope="module")
def cola(whole: Callable[..., TokenisedCorpus]) -> TokenisedCorpus:
    return whole("cola", columns={"text": "sentence", "label": "label"}, slots=64)


@pytest.fixture(scope="module")
def rte(whole: Callable[..., TokenisedCorpus]) -> TokenisedCorpus:
    return whole("rte", **PAIR, slots=256)


def dense(split: TokenisedSplit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, mask and segments of all rows at all S slots."""
    rows = np.repeat(np.arange(len(split)), split.lengths)
    ids, mask, types = (np.zeros((len(split), split.slots), np.int64) for _ in range(3))
    tokens = split.tokens()
    ids[rows, tokens.slot_ids], mask[rows, tokens.slot_ids] = tokens.input_ids, 1
    types[rows, tokens.slot_ids] = tokens.token_type_ids
    return ids, mask, types


def scattered(batches: list[MicroBatch], split: TokenisedSplit) -> tuple[np.ndarray, ...]:
    """Batches put back at all S slots; a row or slot that comes twice is found."""
    ids, mask, types = (np.zeros((len(split), split.slots), np.int64) for _ in range(3))
    for batch in batches:
        where = (batch.rows[batch.inputs_of_tokens].numpy(), batch.slot_ids.numpy())
        assert not mask[batch.rows.numpy()].any(), "a row comes twice"
        ids[where], mask[where] = batch.input_ids.numpy(), 1
        types[where] = batch.token_type_ids.numpy()
    return ids, mask, types


@pytest.mark.parametrize("name", ["cola", "rte"])
def test_every_real_token_appears_once_at_its_slot(
    name: str, request: pytest.FixtureRequest
) -> None:
    corpus: TokenisedCorpus = request.getfixturevalue(name)
    split = corpus.split("train")
    batches = list(micro_batches(split, None, 2048))
    for found, expected in zip(scattered(batches, split), dense(split), strict=True):
        assert (found == expected).all()
    # The control: a batch whose columns stand for other slots is noticed.
    first = batches[-1]
    moved = replace(first, columns=first.columns.flip(0))
    ids = scattered([*batches[:-1], moved], split)[0]
    assert (ids != dense(split)[0]).any()


@pytest.mark.parametrize(("name", "ratio"), [("cola", 5.0), ("rte", 3.3)])
def test_almost_no_padding_is_left(name: str, ratio: float, request: pytest.FixtureRequest) -> None:
    corpus: TokenisedCorpus = request.getfixturevalue(name)
    split = corpus.split("train")
    batches = list(micro_batches(split, None, 512))
    padded = len(split) * split.slots
    assert padded / sum(math.prod(batch.shape) for batch in batches) >= ratio
    assert all(batch.attention_mask.any(0).all() for batch in batches), "no column is all padding"
    # The control: the same rows unsorted leave much more padding.
    unsorted = [micro_batch(split, rows) for rows in np.array_split(split.rows, len(batches))]
    assert padded / sum(math.prod(batch.shape) for batch in unsorted) < 0.8 * ratio


@pytest.mark.parametrize("batch_tokens", [1, 100, 2048])
def test_batches_keep_to_their_budget(rte: TokenisedCorpus, batch_tokens: int) -> None:
    split = rte.split("validation")
    batches = list(micro_batches(split, None, batch_tokens))
    for batch in batches:
        assert len(batch.rows) == 1 or math.prod(batch.shape) <= batch_tokens
    assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == list(range(len(split)))
    if batch_tokens == 1:
        assert len(batches) == len(split)
        assert all(batch.attention_mask.all() for batch in batches)


def test_batches_are_as_full_as_the_budget_allows(rte: TokenisedCorpus) -> None:
    """No batch could have taken the next one's first row as well."""
    split = rte.split("validation")
    batches = list(micro_batches(split, None, 2048))
    for batch, following in pairwise(batches):
        longer = micro_batch(split, [*batch.rows.tolist(), int(following.rows[0])])
        assert math.prod(longer.shape) > 2048


def test_short_inputs_make_batches_of_bounded_size(
    make_task: Make, corpus_of: Build, bert: Any
) -> None:
    split = corpus_of(make_task([{"text": "a", "label": 0}] * 600), bert).split("train")
    sizes = [len(batch.rows) for batch in micro_batches(split, None, 10**9)]
    assert sizes == [LARGEST_BATCH, LARGEST_BATCH, 600 - 2 * LARGEST_BATCH]


def test_the_same_rows_give_the_same_batches(rte: TokenisedCorpus) -> None:
    split = rte.split("validation")
    rows = np.random.default_rng(0).permutation(len(split))[:100]
    first = list(micro_batches(split, rows, 2048))
    again = list(micro_batches(split, rows[::-1].copy(), 2048))
    assert [batch.rows.tolist() for batch in first] == [batch.rows.tolist() for batch in again]
    assert sorted(row for batch in first for row in batch.rows.tolist()) == sorted(rows.tolist())


def test_shards_batch_their_own_rows(
    shared: Path, make_task: Make, corpus_of: Build, bert: Any
) -> None:
    folder = shared / "data" / "cola"
    columns = {"text": "sentence", "label": "label"}
    task = make_task(folder / "validation.jsonl", columns=columns, slots=64)
    split = corpus_of(task, bert, shard_rows=300).split("train")
    batches = [
        batch
        for index in range(len(split.shards))
        for batch in micro_batches(split.shard(index), None, 512)
    ]
    for found, expected in zip(scattered(batches, split), dense(split), strict=True):
        assert (found == expected).all()
    shard = split.shard(1)
    chosen = list(micro_batches(shard, [310, 305], 10**6))
    assert sorted(chosen[0].rows.tolist()) == [305, 310]


def test_types_and_padding_of_a_batch(make_task: Make, corpus_of: Build, bert: Any) -> None:
    rows = [
        {"sentence1": "the", "sentence2": "doll moved", "label": 0},
        {"sentence1": "the doll", "sentence2": "moved", "label": 0},
    ]
    split = corpus_of(make_task(rows, **PAIR), bert).split("train")
    batch = micro_batch(split, [1, 0])
    assert batch.rows.tolist() == [1, 0]
    assert batch.columns.tolist() == [0, 1, 2, 8, 9, 10, 15]
    assert batch.inputs_of_tokens.tolist() == [0] * 6 + [1] * 6
    assert batch.positions_in_input.tolist() == [*range(6), *range(6)]
    assert batch.input_ids.tolist() == [
        101, 1996, 10658, 102, 2333, 102, 101, 1996, 102, 10658, 2333, 102,
    ]  # fmt: skip
    assert batch.attention_mask.tolist() == [
        [True] * 5 + [False, True],
        [True, True, False] + [True] * 4,
    ]
    assert batch.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1]
    assert batch.input_ids.dtype == batch.columns.dtype == batch.rows.dtype == torch.int64
    assert batch.attention_mask.dtype == torch.bool


def batch_of(mask: torch.Tensor) -> MicroBatch:
    lengths, tokens = mask.sum(dim=1).numpy(), np.arange(int(mask.sum()))
    slot_ids = mask.nonzero()[:, 1].numpy()
    return MicroBatch.of(
        np.arange(len(mask)), PackedTokens(tokens, slot_ids, tokens, lengths, lengths - 1)
    )


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
    assert (
        batch.pack(states).data_ptr()
        == states.data_ptr()
        == batch.unpack(states.view(1, 6, 4)).data_ptr()
    )


@pytest.mark.parametrize("dense", [False, True])
def test_heads_are_packed_each_as_states_are(dense: bool) -> None:
    batch = (
        batch_of(torch.ones(2, 3, dtype=torch.bool))
        if dense
        else some_inputs(1, (3, 9, 5)).compact()
    )
    assert batch.dense == dense
    inputs, columns = batch.shape
    states = torch.randn(inputs, 4, columns, 2)
    packed = batch.pack_heads(states)
    unpacked = batch.unpack_heads(packed)
    for head in range(4):
        assert torch.equal(packed[:, head], batch.pack(states[:, head]))
        assert torch.equal(unpacked[:, head], batch.unpack(packed[:, head]))
    assert not torch.equal(packed[:, 0], packed[:, 1])


def test_no_gradient_comes_from_places_without_a_token() -> None:
    batch = batch_of(torch.tensor([[True, True, False], [True, False, True]]))
    tokens = torch.randn(1, 4, 2, requires_grad=True)
    batch.pack(batch.unpack(tokens)).sum().backward()
    assert tokens.grad is not None
    assert torch.equal(tokens.grad, torch.ones(1, 4, 2))


def test_gradients_of_packing_are_its_own_inverse() -> None:
    """As autograd of the plain look-ups has them, where places without a token have no part."""
    batch = some_inputs(1).compact()
    assert not batch.dense
    tokens, mask = len(batch.column_ids), batch.attention_mask[..., None]
    states = torch.randn(1, tokens, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(*batch.shape, 4, dtype=torch.float64)
    (unpacked,) = torch.autograd.grad((batch.unpack(states) * mask * weights).sum(), states)
    assert torch.equal(unpacked, batch.pack(weights))
    places = torch.randn(*batch.shape, 4, dtype=torch.float64, requires_grad=True)
    (packed,) = torch.autograd.grad((batch.pack(places) * states.detach()).sum(), places)
    assert torch.equal(packed, batch.unpack(states.detach()) * mask)
    assert torch.autograd.gradcheck(lambda given: batch.pack(batch.unpack(given) * mask), [states])
    heads = torch.randn(1, 3, tokens, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda given: batch.pack_heads(batch.unpack_heads(given) * mask[:, None]), [heads]
    )


@pytest.mark.parametrize("batch_tokens", [512, 16_384])
@pytest.mark.parametrize("place", [0, 1], ids=["first text", "second text"])
def test_one_very_long_row_pads_no_short_ones(batch_tokens: int, place: int) -> None:
    """Places of all batches, padding included: the long row adds its own, and cuts at most one
    batch in two.
    """
    drawn = np.random.default_rng(0).integers(3, 9, (2_000, 2))
    long = drawn.copy()
    long[1_000, place] = 500

    def places(texts: np.ndarray, batches: Iterable[np.ndarray]) -> int:
        return sum(len(rows) * int(texts[rows].max(axis=0).sum()) for rows in batches)

    without = places(drawn, rows_of_like_length(drawn[:, 0], drawn.sum(1), batch_tokens))
    batches = list(rows_of_like_length(long[:, 0], long.sum(1), batch_tokens))
    assert places(long, batches) - without <= 2 * batch_tokens
    (its,) = (rows for rows in batches if 1_000 in rows)
    assert len(its) * (500 + 8) <= batch_tokens or len(its) == 1
    # The same rows in batches as they come: 256 are padded to the long one.
    in_order = np.split(np.arange(2_000), range(256, 2_000, 256))
    assert places(long, in_order) - places(drawn, in_order) > 100_000
