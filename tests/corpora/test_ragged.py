"""Ragged arrays against plain lists."""

from __future__ import annotations

import numpy as np
import pytest

from papa.corpora.ragged import Ragged

ROWS = [[5, 6, 7], [], [8], [9, 10]]


def lists(ragged: Ragged) -> list[list[int]]:
    return (
        [part.tolist() for part in np.split(ragged.values, ragged.offsets[1:-1])]
        if len(ragged.lengths)
        else []
    )


@pytest.mark.parametrize("rows", [ROWS, [], [[]], [[], [], [1]]])
def test_operations_agree_with_lists(rows: list[list[int]]) -> None:
    ragged = Ragged.of(rows)
    assert lists(ragged) == rows
    assert ragged.positions.tolist() == [place for row in rows for place in range(len(row))]
    assert lists(ragged.cut(2)) == [row[:2] for row in rows]
    assert lists(ragged.where(ragged.values % 2 == 0)) == [
        [value for value in row if value % 2 == 0] for row in rows
    ]


def test_take_repeats_and_reorders() -> None:
    assert lists(Ragged.of(ROWS).take(np.array([3, 0, 3, 1]))) == [[9, 10], [5, 6, 7], [9, 10], []]


def test_joined_rows_are_neighbours() -> None:
    assert lists(Ragged.of(ROWS).joined(np.array([2, 0, 2]))) == [[5, 6, 7], [], [8, 9, 10]]
