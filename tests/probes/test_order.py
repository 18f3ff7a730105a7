"""Laws of the order of rows."""

from __future__ import annotations

import numpy as np
import pytest

from papa.probes.minibatches import WINDOW_ROWS, epoch_order, epoch_windows, window_rows


@pytest.mark.parametrize(
    ("rows", "window"), [(1, 8), (8, 8), (9, 8), (100, 8), (5000, WINDOW_ROWS)]
)
def test_an_epoch_holds_every_row_once(rows: int, window: int) -> None:
    assert np.array_equal(np.sort(epoch_order(rows, 0, 0, window)), np.arange(rows))


def test_the_same_arguments_give_the_same_order() -> None:
    assert np.array_equal(epoch_order(100, 1, 2, 16), epoch_order(100, 1, 2, 16))


def test_seeds_share_windows_and_differ_inside() -> None:
    first, second = (epoch_order(100, 3, seed, 16) for seed in (0, 1))
    windows = epoch_windows(100, 3, 16)
    for start, members in zip(range(0, 100, 16), windows, strict=True):
        one, other = first[start : start + 16], second[start : start + 16]
        assert np.array_equal(np.sort(one), members)
        assert np.array_equal(np.sort(other), members)
        assert not np.array_equal(one, other) or len(members) < 5


def test_epochs_differ() -> None:
    assert not np.array_equal(epoch_order(100, 0, 0, 16), epoch_order(100, 1, 0, 16))
    assert not np.array_equal(epoch_windows(100, 0, 16)[0], epoch_windows(100, 1, 16)[0])


def test_windows_of_one_epoch_differ_in_their_order() -> None:
    order = epoch_order(64, 0, 0, 32)
    first, second = (np.argsort(np.argsort(order[start : start + 32])) for start in (0, 32))
    assert not np.array_equal(first, second)


def test_small_features_fill_whole_windows() -> None:
    assert (
        window_rows(rows=10_000, tokens=110_000, token_values=7 * 384, batch_size=8) == WINDOW_ROWS
    )
    assert (
        window_rows(rows=10_000, tokens=110_000, token_values=7 * 384, batch_size=24)
        == WINDOW_ROWS - 16
    )


def test_large_features_shrink_windows_to_four_gibibytes() -> None:
    rows, tokens, token_values = 10_000, 400_000, 25 * 1024
    window = window_rows(rows, tokens, token_values, batch_size=16)
    row_bytes = tokens // rows * token_values * 4
    assert window % 16 == 0
    assert 0 <= 2**32 - window * row_bytes < 16 * row_bytes


def test_a_window_holds_at_least_one_batch() -> None:
    assert window_rows(rows=10, tokens=10 * 512, token_values=2**24, batch_size=32) == 32
    assert window_rows(rows=10, tokens=100, token_values=10, batch_size=8192) == 8192
