"""Orders of heads, and which cells share a result."""

from dataclasses import replace
from itertools import product

import numpy as np

from papa.ranking.orders import head_order
from papa.spec import Order
from papa.spec.orders import Cell, constant_count, partial_counts

HALF = Cell("encoder", "task", "average", "lambda", 0.5)


def test_fractions_in_whole_heads() -> None:
    """BERT-base has 144 heads, and all-MiniLM-L6-v2 72: 1/16 of them are 4.5."""
    fractions = (1, 1 / 2, 1 / 8, 1 / 16, 0)
    assert [constant_count(fraction, 144) for fraction in fractions] == [0, 72, 126, 135, 144]
    assert [constant_count(fraction, 72) for fraction in fractions] == [0, 36, 63, 68, 72]
    # 0.999 of 72 heads are all of them, and 0.06 and 1/16 leave 4 each.
    counts = partial_counts((1.0, 0.999, 0.5, 0.06, 0.0625, 0.001, 0.0), 72)
    assert counts == {0.5: 36, 0.06: 68, 0.0625: 68}


def test_cells_share_a_result_where_constants_or_order_change_nothing() -> None:
    def results(fraction: float) -> int:
        kinds: list[str] = ["average", "zeros"]
        orders: list[Order] = ["lambda", "random", "first_to_last"]
        both = product(kinds, orders)
        cells = (Cell("encoder", "task", kind, order, fraction) for kind, order in both)
        return len({cell.canonical() for cell in cells})

    assert [results(fraction) for fraction in (1.0, 0.5, 0.0)] == [1, 6, 2]
    assert HALF.canonical() == HALF
    others = (
        replace(HALF, encoder="other"),
        replace(HALF, task="other"),
        replace(HALF, fraction=0.25),
    )
    assert all(cell.canonical() != HALF.canonical() for cell in others)


def test_fractions_that_make_equally_many_heads_constant_share_a_result() -> None:
    def in_heads(fraction: float) -> Cell:
        return replace(HALF, fraction=fraction).canonical(72)

    assert in_heads(0.06) == in_heads(0.0625)
    assert in_heads(0.999) == in_heads(1.0) == Cell("encoder", "task", "", "", 1.0)
    assert in_heads(0.001) == in_heads(0.0) == Cell("encoder", "task", "average", "", 0.0)
    assert replace(HALF, fraction=0.06).canonical() != replace(HALF, fraction=0.0625).canonical()
    rounded = {**vars(HALF), "fraction": 0.333333}
    assert Cell.from_row(rounded) == Cell.from_row({**rounded, "fraction": 1 / 3})
    assert Cell.from_row(rounded) != Cell.from_row(vars(HALF)) == HALF


def test_ties_go_by_layer_then_head() -> None:
    scores = np.array([[0.3, 0.1], [0.1, 0.9]])
    assert head_order("lambda", scores, 2, 2) == [(0, 1), (1, 0), (0, 0), (1, 1)]
    assert head_order("reversed:lambda", scores, 2, 2) == [(1, 1), (0, 0), (1, 0), (0, 1)]
    assert head_order("first_to_last", None, 2, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert head_order("last_to_first", None, 2, 2) == [(1, 0), (1, 1), (0, 0), (0, 1)]
