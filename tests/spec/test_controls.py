"""Constant matrices that depend on no text, written out."""

from __future__ import annotations

import numpy as np
import pytest

from papa.spec.controls import CONTROLS, fibonacci


def picture(matrix: np.ndarray) -> list[str]:
    return ["".join("x" if entry else "." for entry in row) for row in matrix]


@pytest.mark.parametrize(
    ("kind", "parameters", "rows"),
    [
        ("previous", {}, ["....", "x...", ".x..", "..x."]),
        ("next", {}, [".x..", "..x.", "...x", "...."]),
        ("local", {"window": 1}, ["xx..", "xxx.", ".xxx", "..xx"]),
        ("local", {}, ["xxx.", "xxxx", "xxxx", ".xxx"]),
    ],
)
def test_fixed_patterns(kind: str, parameters: dict[str, int], rows: list[str]) -> None:
    assert picture(CONTROLS[kind](4, **parameters)) == rows


def test_heads_have_rows_of_the_wythoff_array_and_share_no_distance() -> None:
    """Its first rows: 1 2 3 5 8 13, 4 7 11 18, 6 10 16 26, 9 15 24 39 (OEIS A035513)."""
    found = fibonacci(20, 4)
    assert found[:, 0].all(), "[CLS] attends to all"
    assert found[:, :, 0].all(), "all attend to [CLS]"
    distances = [{abs(i - j) for i, j in np.argwhere(one) if i and j} for one in found]
    assert distances == [{1, 2, 3, 5, 8, 13}, {4, 7, 11, 18}, {6, 10, 16}, {9, 15}]
    assert (found == found.transpose(0, 2, 1)).all()
