"""Which heads may become constant within a drop."""

from __future__ import annotations

import math

import pandas
import pytest

from papa.scores.summary import LINE, heads_at
from papa.spec.orders import Cell


def summary(*drops: tuple[int, float, float], reason: str = "", seeds: int = 3) -> pandas.DataFrame:
    rows = [
        {
            **dict(zip(LINE, ("minilm", "reviews", "average", "lambda"), strict=True)),
            "fraction": 1 - count / 72,
            "constant_heads": count,
            "relative_drop": (low + high) / 2,
            "drop_low": low,
            "drop_high": high,
            "seeds": seeds,
            "beats_baseline": not reason,
            "reason": reason,
        }
        for count, low, high in [(0, 0.0, 0.0), *drops]
    ]
    return pandas.DataFrame(rows)


def test_numbers_are_within_up_to_the_first_that_is_not() -> None:
    drops = (9, -0.02, 0.01), (18, -0.01, 0.03), (36, -0.01, 0.005), (72, 0.05, 0.09)
    told = {9: "within", 18: "undecided", 36: "undecided", 72: "beyond"}
    for some, expected in ((drops, told), ((drops[0], drops[2]), {9: "within", 36: "within"})):
        found = heads_at(summary(*some), {}, 0.01).set_index("constant_heads")
        assert found["verdict"].to_dict() == expected
        ends = found[["low", "drop", "high"]].itertuples(index=False, name=None)
        assert [*ends] == [(low, (low + high) / 2, high) for _, low, high in some]


def test_heads_are_those_of_their_cells() -> None:
    frame, heads = summary((2, -0.02, 0.001)), ((0, 3), (1, 7))
    cell = Cell("minilm", "reviews", "average", "lambda", round(1 - 2 / 72, 6))
    assert heads_at(frame, {cell: heads}, 0.01)["heads"].tolist() == [heads]
    assert heads_at(frame, {cell: None}, 0.01)["heads"].tolist() == [None], "each seed has others"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (summary((9, -0.02, 0.001), seeds=1), "one seed has no interval"),
        (summary((9, math.nan, math.nan)), "the original's score comes near 0"),
        (summary((9, -0.02, 0.001)).iloc[1:], "it has no fraction 1"),
        (summary((9, -0.02, 0.001), reason="does not beat one"), "the original does not beat one"),
    ],
)
def test_where_nothing_can_be_told_it_says_why(frame: pandas.DataFrame, reason: str) -> None:
    (row,) = heads_at(frame, {}, 0.01).to_dict("records")
    assert row["verdict"] == "undecided"
    assert row["reason"].startswith(reason)
