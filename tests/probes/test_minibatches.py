"""Laws of the order of rows, and of how minibatches are cut into parts: every row once, about equal
tokens, and nothing lost of the mean loss.
"""

from __future__ import annotations

import numpy as np
import pytest

from papa.corpora import TokenisedCorpus
from papa.corpora.tokens import IGNORED
from papa.probes.minibatches import (
    WINDOW_ROWS,
    epoch_order,
    epoch_windows,
    parts_of,
    window_rows,
)

TOKENS = 60
SEED = (0, 0, 0)


@pytest.mark.parametrize(
    ("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 8), (5000, WINDOW_ROWS)]
)
def test_an_epoch_holds_every_row_once(rows: int, window: int) -> None:
    assert np.array_equal(np.sort(epoch_order(rows, 0, 0, window)), np.arange(rows))


def test_seeds_share_windows_and_differ_inside() -> None:
    first, second = (epoch_order(100, 3, seed, 16) for seed in (0, 1))
    windows = epoch_windows(100, 3, 16)
    for start, members in zip(range(0, 100, 16), windows, strict=True):
        one, other = first[start : start + 16], second[start : start + 16]
        assert np.array_equal(np.sort(one), members)
        assert np.array_equal(np.sort(other), members)
        assert not np.array_equal(one, other) or len(members) < 5


def test_epochs_and_windows_differ_in_their_order() -> None:
    assert np.array_equal(epoch_order(100, 1, 2, 16), epoch_order(100, 1, 2, 16))
    assert not np.array_equal(epoch_order(100, 0, 0, 16), epoch_order(100, 1, 0, 16))
    assert not np.array_equal(epoch_windows(100, 0, 16)[0], epoch_windows(100, 1, 16)[0])
    order = epoch_order(64, 0, 0, 32)
    first, second = (np.argsort(np.argsort(order[start : start + 32])) for start in (0, 32))
    assert not np.array_equal(first, second)


def test_windows_hold_four_gibibytes_at_most_and_one_batch_at_least() -> None:
    assert window_rows(10_000, 110_000, 7 * 384, batch_size=8) == WINDOW_ROWS
    assert window_rows(10_000, 110_000, 7 * 384, batch_size=24) == WINDOW_ROWS - 16
    rows, tokens, token_values = 10_000, 400_000, 25 * 1024
    window = window_rows(rows, tokens, token_values, batch_size=16)
    row_bytes = tokens // rows * token_values * 4
    assert window % 16 == 0
    assert 0 <= 2**32 - window * row_bytes < 16 * row_bytes
    assert window_rows(rows=10, tokens=10 * 512, token_values=2**24, batch_size=32) == 32
    assert window_rows(rows=10, tokens=100, token_values=10, batch_size=8192) == 8192


@pytest.fixture(params=["cola", "rte", "wnut17", "wikitext"])
def split(request: pytest.FixtureRequest, corpora: dict[str, TokenisedCorpus]):
    return corpora[request.param].split("train")


def test_every_row_with_a_label_is_in_one_part(split) -> None:
    minibatch = np.random.default_rng(0).permutation(len(split))[:16]
    parts = parts_of(split, minibatch, TOKENS, SEED)
    labelled = [
        row
        for row in minibatch.tolist()
        if not split.label_per_token
        or (split.labels[split.offsets[row] : split.offsets[row + 1]] != IGNORED).any()
    ]
    found = np.concatenate([part.rows for part in parts]).tolist()
    assert len(parts) > 1
    assert len(set(found)) == len(found)
    assert set(labelled) <= set(found) <= set(minibatch.tolist())
    assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-12)
    assert len({part.dropout_seed for part in parts}) == len(parts)


def test_parts_have_about_equal_tokens_and_like_lengths(split) -> None:
    parts = parts_of(split, np.arange(len(split)), TOKENS, SEED)
    longest = int(split.lengths.max())
    tokens = [int(split.lengths[part.rows].sum()) for part in parts]
    assert max(tokens) <= TOKENS + longest
    first = np.concatenate([split.first_lengths[part.rows] for part in parts])
    assert (np.diff(first) >= 0).all()


def test_the_cut_does_not_depend_on_the_order_of_rows(split) -> None:
    minibatch = np.arange(16)
    one, other = (parts_of(split, rows, TOKENS, SEED) for rows in (minibatch, minibatch[::-1]))
    assert [part.rows.tolist() for part in one] == [part.rows.tolist() for part in other]


def test_dropout_depends_on_step_and_part_alone(split) -> None:
    def seeds(rows: np.ndarray, step: int) -> list[int]:
        return [part.dropout_seed for part in parts_of(split, rows, TOKENS, (7, 0, step))]

    one, other = seeds(np.arange(8), 3), seeds(np.arange(8, 16), 3)
    common = min(len(one), len(other))
    assert one[:common] == other[:common]
    assert not set(one) & set(seeds(np.arange(8), 4))


def test_large_parts_are_whole_minibatches(split) -> None:
    (part,) = parts_of(split, np.arange(8), 10**6, SEED)
    assert part.share == 1
    assert sorted(part.rows.tolist()) == list(range(8))


def test_a_minibatch_is_whole_or_cut_into_an_even_number(
    corpora: dict[str, TokenisedCorpus],
) -> None:
    split = corpora["cola"].split("train")
    counts = [len(parts_of(split, np.arange(rows), TOKENS, SEED)) for rows in range(1, 40)]
    assert counts[0] == 1
    assert max(counts) > 4
    assert all(count == 1 or count % 2 == 0 for count in counts)
