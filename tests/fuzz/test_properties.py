"""Laws that hold for whatever is drawn: the layout, head orders and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from papa.ranking.orders import HEAD_ORDERS, head_order
from papa.scores.intervals import interval
from papa.spec import LayoutSpec
from papa.spec.orders import constant_heads
from papa.text.layout import (
    PackedTokens,
    arrange_one,
    arrange_pair,
    pair_capacity,
    text_capacity,
)
from papa.text.tokens import SpecialTokens

pytestmark = pytest.mark.slow

TEXT = st.lists(st.integers(10, 999), max_size=12)
FRAMING = SpecialTokens(cls=1, sep=2, pad=0, between=1, segments=(0, 0, 1))
FRAMINGS = st.sampled_from([FRAMING, SpecialTokens(cls=1, sep=2, pad=0, between=2)])
HALVES = st.integers(4, 8)


def dense(tokens: PackedTokens, slots: int) -> list[list[int]]:
    """Each row as its slots; -1 where there is no token."""
    table = np.full((len(tokens.lengths), slots), -1)
    places = np.repeat(np.arange(len(table)), tokens.lengths), tokens.slot_ids
    assert len({*zip(*places, strict=True)}) == len(tokens.slot_ids), "two tokens in one slot"
    table[places] = tokens.input_ids
    return table.tolist()


@given(st.lists(TEXT, min_size=1, max_size=7), FRAMINGS, HALVES, st.sampled_from(["full", "half"]))
def test_one_text_in_its_slots(
    rows: list[list[int]], framing: SpecialTokens, half: int, truncation: Any
) -> None:
    """Paper, App. A: [CLS] text [PAD]… [SEP] with [SEP] in the last slot."""
    slots = 2 * half
    kept = text_capacity(LayoutSpec(one_text_truncation=truncation), "text", slots)
    found = dense(arrange_one([row[:kept] for row in rows], framing, slots), slots)
    for row, line in zip(rows, found, strict=True):
        text = row[:kept]
        assert line == [framing.cls, *text, *[-1] * (slots - 2 - len(text)), framing.sep]


@given(
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6),
    FRAMINGS,
    HALVES,
    st.sampled_from(["follow", "stay"]),
)
def test_two_texts_in_their_halves(
    pairs: Any, framing: SpecialTokens, half: int, segment_ids: Any
) -> None:
    most = pair_capacity(framing, 2 * half)
    first, second = zip(*pairs, strict=True)
    tokens = arrange_pair(first, second, framing, segment_ids, 2 * half)
    for (a, b), line in zip(pairs, dense(tokens, 2 * half), strict=True):
        left = [framing.cls, *a[: most[0]]]
        right = [*[framing.sep] * framing.between, *b[: most[1]]]
        padding = [-1] * half
        assert line[:half] == [*left, *padding][:half]
        assert line[half:] == [*[*right, *padding][: half - 1], framing.sep]
    if segment_ids == "follow":
        in_second = tokens.slot_ids >= half + framing.between
        assert (tokens.token_type_ids[in_second] == framing.segments[2]).all()
        assert (tokens.token_type_ids[tokens.slot_ids < half] == framing.segments[0]).all()


HEAD_COUNTS = st.tuples(st.integers(1, 5), st.integers(1, 6))


@given(HEAD_COUNTS, st.integers(0, 99), st.floats(0, 1), st.floats(0, 1), st.data())
def test_constant_heads_are_the_first_of_their_order(
    shape: tuple[int, int], seed: int, fraction: float, other: float, data: st.DataObject
) -> None:
    every = list(np.ndindex(shape))
    drawn = data.draw(arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.5, 0.5, 0.9])))
    for name in HEAD_ORDERS:
        arranged = head_order(name, drawn, *shape, seed)
        assert sorted(arranged) == every, "every head is there once"
        constant = constant_heads(arranged, fraction)
        assert list(constant) == arranged[: round((1 - fraction) * len(every))]
        fewer, more = sorted((constant, constant_heads(arranged, other)), key=len)
        assert set(fewer) <= set(more), "a smaller fraction keeps what is constant"
        assert head_order(name, drawn, *shape, seed) == arranged
    keys = [(drawn[head], head) for head in head_order("lambda", drawn, *shape)]
    assert keys == sorted(keys), "ties go by layer and head"


SCORES = st.lists(st.floats(-1e3, 1e3).map(lambda score: round(score, 6)), min_size=2, max_size=8)


@given(SCORES, st.floats(-100, 100).map(lambda value: round(value, 3)), st.data())
def test_intervals(scores: list[float], shift: float, data: st.DataObject) -> None:
    found = interval(scores)
    assert found.low <= found.mean <= found.high
    assert min(scores) - 1e-9 <= found.mean <= max(scores) + 1e-9
    assert interval(data.draw(st.permutations(scores))) == found, "seeds have no order"
    mirrored = interval([-score for score in scores])
    assert (mirrored.low, mirrored.mean, mirrored.high) == (-found.high, -found.mean, -found.low)
    wide, narrow = interval(scores, 0.99), interval(scores, 0.5)
    assert wide.low <= found.low <= narrow.low
    moved = interval([score + shift for score in scores])
    assert moved.high - moved.low == pytest.approx(found.high - found.low, abs=1e-6)
