"""How many heads may become constant: numbers whose drop is within a limit."""

import math

import pandas
import pytest

from papa.errors import SpecError
from papa.scores.drops import MaxDrop
from papa.scores.verdicts import heads_within
from papa.spec.columns import LINE
from papa.spec.orders import Cell


def summary(*drops: tuple[int, float, float], reason: str = "", seeds: int = 3) -> pandas.DataFrame:
    rows = [
        {
            **dict(zip(LINE, ("minilm", "reviews", "average", "lambda"), strict=True)),
            "metric": "accuracy",
            "fraction": 1 - count / 72,
            "constant_heads": count,
            "share_of_heads": 1 - count / 72,
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


ONE_PERCENT = MaxDrop.parse("1%", "max_drop")


FIRST = (9, -0.02, 0.01)
WIDE = (18, -0.01, 0.03)
SECOND = (36, -0.01, 0.005)
LAST = (72, 0.05, 0.09)


def test_a_number_of_heads_has_one_row() -> None:
    rounded = summary(FIRST, LAST, LAST).assign(fraction=[1, 0.875, 0.005, 0])
    found = heads_within(rounded, {}, ONE_PERCENT)
    assert found[["fraction", "constant_heads"]].to_numpy().tolist() == [[0.875, 9], [0, 72]]


@pytest.mark.parametrize(
    ("drops", "verdicts"),
    [
        ([FIRST, WIDE, SECOND, LAST], ["within", "undecided", "undecided", "beyond"]),
        ([FIRST, SECOND], ["within", "within"]),
    ],
)
def test_numbers_are_within_up_to_the_first_that_is_not(
    drops: list[tuple[int, float, float]], verdicts: list[str]
) -> None:
    assert [*heads_within(summary(*drops), {}, ONE_PERCENT)["verdict"]] == verdicts


def test_a_number_without_an_interval_is_undecided() -> None:
    frame = summary(FIRST, SECOND).assign(drop_high=[0.0, math.nan, 0.005])
    assert [*heads_within(frame, {}, ONE_PERCENT)["verdict"]] == ["undecided", "within"]


def test_a_number_without_an_interval_does_not_make_up_for_smaller_ones() -> None:
    frame = summary(FIRST, WIDE, SECOND).assign(drop_high=[0.0, 0.03, math.nan, 0.005])
    assert [*heads_within(frame, {}, ONE_PERCENT)["verdict"]] == ["undecided"] * 3


def test_heads_are_those_of_their_cells() -> None:
    frame = summary((2, -0.02, 0.001))
    heads = ((0, 3), (1, 7))
    cell = Cell("minilm", "reviews", "average", "lambda", round(1 - 2 / 72, 6))
    assert heads_within(frame, {cell: heads}, ONE_PERCENT)["heads"].tolist() == [heads]
    of_seeds = heads_within(frame, {cell: None}, ONE_PERCENT)["heads"].tolist()
    assert of_seeds == [None], "each seed has others"


def test_a_narrow_window_shows_numbers_and_verdicts() -> None:
    frame = summary((2, -0.02, 0.001))
    heads = tuple((0, head) for head in range(12))
    cell = Cell("minilm", "reviews", "average", "lambda", round(1 - 2 / 72, 6))
    with pandas.option_context("display.width", 80):
        printed = str(heads_within(frame, {cell: heads}, ONE_PERCENT).drop(columns=LINE[:2]))
    assert "..." in printed, "it does not fit"
    assert "constant_heads" in printed
    assert "within" in printed


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (summary((9, -0.02, 0.001), seeds=1), "one seed has no interval"),
        (summary((9, math.nan, math.nan)), "the original's score is near 0"),
        (summary((9, -0.02, 0.001)).iloc[1:], "it has no fraction 1"),
        (summary((9, -0.02, 0.001), reason="does not beat one"), "the original does not beat one"),
    ],
)
def test_where_nothing_can_be_told_it_says_why(frame: pandas.DataFrame, reason: str) -> None:
    (row,) = heads_within(frame, {}, ONE_PERCENT).to_dict("records")
    assert row["verdict"] == "undecided"
    assert row["reason"].startswith(reason)


def loss(*differences: tuple[int, float, float]) -> pandas.DataFrame:
    """A summary of a loss, whose drops are in nats."""
    columns = {"relative_drop": "difference", "drop_low": "difference_low"}
    frame = summary(*differences).rename(columns={**columns, "drop_high": "difference_high"})
    return frame.assign(task="words", metric="negative_log_perplexity", relative_drop=math.nan)


def test_a_loss_is_within_nats_only() -> None:
    frame = loss((9, -0.01, 0.02), (36, 0.5, 0.7))
    nats = MaxDrop.parse("0.05nats", "max_drop")
    assert [*heads_within(frame, {}, nats)["verdict"]] == ["within", "beyond"]
    assert [*heads_within(frame, {}, MaxDrop())["verdict"]] == ["undecided", "beyond"], "0.01 nats"
    with pytest.raises(SpecError, match=r"words.*0.05nats"):
        heads_within(frame, {}, MaxDrop.parse("5%", "max_drop"))
    with pytest.raises(SpecError, match=r"reviews.*1%"):
        heads_within(summary((9, -0.02, 0.01)), {}, nats)
