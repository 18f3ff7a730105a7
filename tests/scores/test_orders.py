"""Head orders told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from papa.ranking.orders import head_order
from papa.reporting.answers import orders_note
from papa.reporting.tables import order_table
from papa.scores.intervals import Measured, deviation_of_lists, holm, p_value
from papa.scores.orders import FoundOrder, compare_orders
from tests.reporting.studies import results

MINILM = "all-MiniLM-L6-v2"
ORDERS = ("first_to_last", "reversed:first_to_last", "random", "lambda")
SEEDS = (0, 1, 2)


def found() -> dict[tuple[str, str], dict[str, FoundOrder]]:
    orders = {
        order: FoundOrder({seed: head_order(order, None, 6, 12, seed) for seed in SEEDS})
        for order in ORDERS[:3]
    }
    orders["random"] = FoundOrder(orders["random"].by_seed, seconds=12.34, evaluations=5)
    return {(MINILM, "reviews"): orders}


def frame(better: float = 0.0) -> pandas.DataFrame:
    rows = results(orders=ORDERS)
    return rows.assign(score=rows["score"] + better * (rows["order"] == "lambda"))


def compared(rows: pandas.DataFrame, orders: Any = None) -> tuple[pandas.DataFrame, ...]:
    pairs, scores = compare_orders(rows, orders or {}) or pytest.fail("one order")
    return pairs, pairs[pairs["fraction"].isna()], scores


def mean_by_seed(cells: pandas.DataFrame) -> Measured:
    groups = dict(list(cells.groupby("seed")))
    influence = {seed: np.mean([*one["influence"]], axis=0) for seed, one in groups.items()}
    return Measured({seed: one["score"].mean() for seed, one in groups.items()}, influence)


def test_differences_are_those_of_mean_scores_and_of_each_fraction() -> None:
    rows = frame()
    pairs, of_means, scores = compared(rows, found())
    assert len(pairs) == 6 * (1 + 3), "six pairs, at three fractions and over them"
    means = rows[rows["fraction"].between(0, 1, inclusive="neither")]
    by_order = means.groupby("order")["score"].mean()
    for row in of_means.to_dict("records"):
        assert row["difference"] == pytest.approx(by_order[row["order"]] - by_order[row["other"]])
        assert row["low"] < row["difference"] < row["high"]
        assert row["p"] <= row["p_holm"]
    half = rows[rows["fraction"] == 0.5].groupby("order")["score"].mean()
    at = pairs[pairs["fraction"] == 0.5].iloc[0]
    assert at["difference"] == pytest.approx(half["first_to_last"] - half["reversed:first_to_last"])
    assert scores.set_index("order")["mean"].to_dict() == pytest.approx(by_order.to_dict())
    assert scores.set_index("order").loc["random", "seconds"] == 12.34


def test_orders_whose_examples_all_agree_may_still_differ_on_others() -> None:
    rows = results(orders=ORDERS[:2])
    rows["score"] = 0.7
    rows["influence"] = [np.zeros(20)] * len(rows)
    for row in compared(rows)[0].to_dict("records"):
        assert (row["low"], row["high"]) == pytest.approx((-3.84 / 20, 3.84 / 20), abs=1e-3)


def test_orders_are_alike_as_far_as_they_are_known() -> None:
    rows = compared(frame(), found())[0].set_index(["order", "other", "fraction"])
    turned, drawn = ("first_to_last", "reversed:first_to_last"), ("first_to_last", "random")
    assert rows.loc[(*turned, np.nan), "kendall_tau"].item() == pytest.approx(-1)
    assert rows.loc[(*turned, 0.5), "kept_by_both"].item() == 0
    assert abs(rows.loc[(*drawn, np.nan), "kendall_tau"].item()) < 0.2
    assert rows.loc[(*drawn, 0.0625), "kept_by_chance"].item() == pytest.approx(4 / 72)
    assert rows.xs("lambda", level="other")["kendall_tau"].isna().all(), "nobody told its heads"


def test_holm_goes_over_pairs_with_random_orders_and_over_all_others() -> None:
    rows = frame(better=0.004)
    _, means, _ = compared(rows)
    between = rows[rows["fraction"].between(0, 1, inclusive="neither")]
    own = {order: mean_by_seed(cells) for order, cells in between.groupby("order")}
    spread = deviation_of_lists(own["random"], [own[one] for one in ORDERS if one != "random"])
    for row in means.to_dict("records"):
        pair = row["order"], row["other"]
        # Of two fixed orders both are single lists.
        deviation = spread * (1 if "random" in pair else 2**0.5)
        assert row["p"] == pytest.approx(p_value(*map(own.get, pair), deviation))
    drawn = (means["order"] == "random") | (means["other"] == "random")
    assert (drawn.sum(), (~drawn).sum()) == (3, 3)
    for family in (means[drawn], means[~drawn]):
        assert family["p_holm"].tolist() == pytest.approx(holm(family["p"].tolist()))
    assert means["p_holm"].tolist() != pytest.approx(holm(means["p"].tolist()))


def test_one_order_or_no_fraction_between_is_no_comparison() -> None:
    assert compare_orders(results(), {}) is None
    assert compare_orders(results(orders=ORDERS, fractions=(1, 0)), {}) is None
    _, means, _ = compared(results(orders=ORDERS, seeds=(0,)))
    assert not means["beyond_chance"].any(), "one seed tells nothing"


def test_tables_and_a_sentence_tell_only_what_is_better_beyond_chance() -> None:
    pairs, _, scores = compared(frame())
    assert [row[-4:-2] for row in order_table(scores, pairs).rows] == [["0", "0"]] * 4
    pairs, _, scores = compared(frame(better=0.2), found())
    assert "Of 6 differences between two head orders 3 are beyond chance" in orders_note(pairs)
    best, *others = order_table(scores, pairs).rows
    assert (best[0], best[-4:]) == ("λ ascending", ["3", "0", "–", "–"])
    assert [row[-4:-2] for row in others] == [["0", "1"]] * 3
    rows = {row[0]: row for row in others}
    assert rows["random"][-2:] == ["12.3", "5"]
    turned = rows["first layer to last, reversed"]
    assert (best[3], turned[3]) == ("–", "-1.00"), "Kendall's τ with the first"
