"""Head orders told apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas
import pytest

from papa.ranking.orders import head_order
from papa.reporting.order_table import order_table
from papa.reporting.sentences import orders_note
from papa.scores.intervals import SeedScores
from papa.scores.order_comparison import (
    StudiedOrder,
    compare_means,
    compare_orders,
    fewest_random_lists,
)
from papa.scores.p_values import holm, p_value
from papa.scores.summary import summarise
from tests.reporting.studies import results

MINILM = "all-MiniLM-L6-v2"
ORDERS = ("first_to_last", "reversed:first_to_last", "random", "lambda")
SEEDS = (0, 1, 2)
FAMILIES = 100


def studied_orders(seeds: Sequence[int] = SEEDS) -> dict[tuple[str, str], dict[str, StudiedOrder]]:
    orders = {
        order: StudiedOrder({seed: head_order(order, None, 6, 12, seed) for seed in seeds})
        for order in ORDERS[:3]
    }
    orders["random"] = StudiedOrder(orders["random"].by_seed, seconds=12.34, evaluations=5)
    return {(MINILM, "reviews"): orders}


def frame(better: float = 0.0, seeds: Sequence[int] = SEEDS) -> pandas.DataFrame:
    rows = results(orders=ORDERS, seeds=seeds)
    return rows.assign(score=rows["score"] + better * (rows["order"] == "lambda"))


def compared(rows: pandas.DataFrame, orders: Any = None) -> tuple[pandas.DataFrame, ...]:
    comparison = compare_orders(rows, orders or {}) or pytest.fail("one order")
    pairs = comparison.pairs
    return pairs, pairs[pairs["fraction"].isna()], comparison.scores


def mean_by_seed(cells: pandas.DataFrame) -> SeedScores:
    groups = dict(list(cells.groupby("seed")))
    influence = {seed: np.mean([*cell["influence"]], axis=0) for seed, cell in groups.items()}
    scores = {seed: cell["score"].mean() for seed, cell in groups.items()}
    return SeedScores(scores, influence)


def test_differences_are_those_of_mean_scores() -> None:
    rows = frame()
    pairs, of_means, scores = compared(rows, studied_orders())
    assert len(pairs) == 6 * (1 + 3), "six pairs, at three fractions and over them"
    means = rows[rows["fraction"].between(0, 1, inclusive="neither")]
    by_order = means.groupby("order")["score"].mean()
    for row in of_means.to_dict("records"):
        assert row["difference"] == pytest.approx(by_order[row["order"]] - by_order[row["other"]])
        assert row["low"] < row["difference"] < row["high"]
        assert row["p"] <= row["p_holm"]
    half = rows[rows["fraction"] == 0.5].groupby("order")["score"].mean()
    row_of_half = pairs[pairs["fraction"] == 0.5].iloc[0]
    expected = half["first_to_last"] - half["reversed:first_to_last"]
    assert row_of_half["difference"] == pytest.approx(expected)
    assert scores.set_index("order")["mean"].to_dict() == pytest.approx(by_order.to_dict())
    assert scores.set_index("order").loc["random", "seconds"] == 12.34


def test_orders_whose_examples_all_agree_may_still_differ_on_others() -> None:
    rows = results(orders=ORDERS[:2])
    rows["score"] = 0.7
    rows["influence"] = [np.zeros(20)] * len(rows)
    for row in compared(rows)[0].to_dict("records"):
        assert (row["low"], row["high"]) == pytest.approx((-3.84 / 20, 3.84 / 20), abs=1e-3)


def test_orders_are_alike_as_far_as_they_are_known() -> None:
    rows = compared(frame(), studied_orders())[0].set_index(["order", "other", "fraction"])
    turned = ("first_to_last", "reversed:first_to_last")
    drawn = ("first_to_last", "random")
    assert rows.loc[(*turned, np.nan), "kendall_tau"].item() == pytest.approx(-1)
    assert rows.loc[(*turned, 0.5), "kept_by_both"].item() == 0
    assert abs(rows.loc[(*drawn, np.nan), "kendall_tau"].item()) < 0.2
    assert rows.loc[(*drawn, 0.0625), "kept_by_chance"].item() == pytest.approx(4 / 72)
    assert rows.xs("lambda", level="other")["kendall_tau"].isna().all(), "nobody told its heads"


def test_holm_adjusts_random_pairs_apart_from_all_others() -> None:
    rows = frame(better=0.004)
    _, means, _ = compared(rows)
    between = rows[rows["fraction"].between(0, 1, inclusive="neither")]
    scores_by_order = {order: mean_by_seed(cells) for order, cells in between.groupby("order")}
    fixed = [scores_by_order[name] for name in ORDERS if name != "random"]
    shared = {seed: np.mean([order.scores[seed] for order in fixed]) for seed in fixed[0].scores}
    random_scores = scores_by_order["random"].scores
    spread = float(np.std([random_scores[seed] - shared[seed] for seed in shared], ddof=1))
    for row in means.to_dict("records"):
        pair = row["order"], row["other"]
        # Of two fixed orders both are single lists.
        deviation = spread * (1 if "random" in pair else 2**0.5)
        assert row["p"] >= p_value(*map(scores_by_order.get, pair), deviation) - 1e-9
    drawn = (means["order"] == "random") | (means["other"] == "random")
    assert (drawn.sum(), (~drawn).sum()) == (3, 3)
    for family in (means[drawn], means[~drawn]):
        assert family["p_holm"].tolist() == pytest.approx(holm(family["p"].tolist()))
    assert means["p"].min() >= 1 / 10 - 1e-9, "of four lists, and of the ten pairs of five"


def test_one_order_or_no_fraction_between_is_no_comparison() -> None:
    assert compare_orders(results(), {}) is None
    assert compare_orders(results(orders=ORDERS, fractions=(1, 0)), {}) is None
    _, means, _ = compared(results(orders=ORDERS, seeds=(0,)))
    assert not means["beyond_chance"].any(), "one seed tells nothing"


def test_the_table_of_orders_counts_significant_differences() -> None:
    # Of two orders with one list each the p value is usually two in all lists, three by Holm's.
    seeds = range(119)
    rows = frame(better=0.2, seeds=seeds)
    comparison = compare_orders(rows, studied_orders(seeds))
    assert comparison is not None
    assert f"{fewest_random_lists(3)} random lists" in orders_note(comparison.pairs)
    table = order_table(comparison, summarise(rows))
    assert table.heading == "Head orders (accuracy)"
    assert table.rows[0][1] == "smallest λ first"
    assert [row[-4:-2] for row in table.rows] == [["3", "0"], *[["0", "1"]] * 3]


@pytest.mark.parametrize(("lists", "significant"), [(3, False), (18, False), (19, True)])
def test_one_order_takes_nineteen_random_lists(lists: int, significant: bool) -> None:
    rows = frame(better=0.2, seeds=range(lists))
    rows = rows[rows["order"].isin(["random", "lambda"])]
    (row,) = compared(rows)[1].to_dict("records")
    assert row["beyond_chance"] == significant
    assert row["p"] == pytest.approx(1 / (lists + 1))


def test_two_orders_may_differ_as_two_random_lists_do() -> None:
    """Random lists score 1 or -1, two orders 1.25 and -1.25: a distance that no two lists have, and
    of 1.77 standard deviations of the difference of two.
    """
    influence = {seed: np.zeros(20) for seed in range(40)}
    lists = SeedScores({seed: float((-1) ** seed) for seed in range(40)}, influence)
    first = SeedScores(dict.fromkeys(range(40), 1.25), influence)
    second = SeedScores(dict.fromkeys(range(40), -1.25), influence)
    tested = compare_means({"first": first, "second": second, "random": lists})["first", "second"]
    assert 0.06 < tested["p"] < 0.1


@pytest.mark.parametrize("critical", [1, 3, None], ids=["one head", "three heads", "all heads"])
@pytest.mark.parametrize(("orders", "seeds"), [(2, 5), (1, 19), (2, 39)])
def test_random_lists_are_rarely_significant(critical: int | None, orders: int, seeds: int) -> None:
    """All lists of heads are random. Few heads matter, or all a little."""
    numbers = np.random.default_rng(seeds)
    wrong = np.zeros(2)
    for _ in range(FAMILIES):
        pairs = compare_means(random_family(numbers, orders, seeds, critical))
        for with_random in (True, False):
            wrong[int(with_random)] += any(
                tested["beyond_chance"]
                for pair, tested in pairs.items()
                if ("random" in pair) == with_random
            )
    assert (wrong / FAMILIES <= 0.05 + 3 * (0.05 * 0.95 / FAMILIES) ** 0.5).all()


def random_family(
    numbers: np.random.Generator, orders: int, seeds: int, critical: int | None
) -> dict[str, SeedScores]:
    """Scores of random lists on 60 examples: ``orders`` with one list, and one with a list a
    seed. A list loses .15 of the examples for each critical head among its three of 24.
    """
    known = numbers.random(60) < 0.85
    loses = numbers.random((24, 60)) < 0.15

    def measured_list() -> tuple[float, np.ndarray]:
        constant = numbers.permutation(24)[:3]
        if critical is None:
            right = known - 0.02 * numbers.normal()
        else:
            lost = loses[constant[constant < critical]].any(axis=0)
            right = (known & ~lost).astype(float)
        return right.mean(), (right - right.mean()) / 59

    def measured(lists: list[tuple[float, np.ndarray]]) -> SeedScores:
        scores = {seed: score for seed, (score, _) in enumerate(lists)}
        return SeedScores(scores, {seed: influence for seed, (_, influence) in enumerate(lists)})

    family = {f"order {number}": measured([measured_list()] * seeds) for number in range(orders)}
    return {**family, "random": measured([measured_list() for _ in range(seeds)])}
