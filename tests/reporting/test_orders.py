"""Head orders told apart, in the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

from papa.reporting.columns import ORDER_COLUMNS
from papa.reporting.orders import BETTER, NOT_TOLD, WORSE, FoundOrder, compare_orders
from papa.reporting.report import Extras, write_report
from papa.reporting.summary import summarise
from papa.scores.intervals import holm
from papa.spec.orders import head_order
from tests.reporting.studies import results, study

MINILM = "all-MiniLM-L6-v2"
ORDERS = ("first_to_last", "reversed:first_to_last", "random", "lambda")
SEEDS = (0, 1, 2)


def found() -> dict[tuple[str, str], dict[str, FoundOrder]]:
    """All but that by λ, which is of another run."""
    orders = {
        order: FoundOrder({seed: head_order(order, None, 6, 12, seed) for seed in SEEDS})
        for order in ORDERS[:3]
    }
    orders["random"] = FoundOrder(orders["random"].by_seed, seconds=12.34, evaluations=5)
    return {(MINILM, "reviews"): orders}


def frame(better: float = 0.0) -> pandas.DataFrame:
    """Of four orders, that by λ better than the others."""
    rows = results(orders=ORDERS)
    return rows.assign(score=rows["score"] + better * (rows["order"] == "lambda"))


def test_differences_are_those_of_mean_scores_and_of_each_fraction() -> None:
    rows = frame()
    compared = compare_orders(rows, found())
    assert compared is not None
    assert list(compared.pairs) == list(ORDER_COLUMNS)
    assert len(compared.pairs) == 6 * (1 + 3), "six pairs, at three fractions and over them"
    means = rows[rows["fraction"].between(0, 1, inclusive="neither")]
    by_order = means.groupby("order")["score"].mean()
    for row in compared.means.to_dict("records"):
        assert row["difference"] == pytest.approx(by_order[row["order"]] - by_order[row["other"]])
        assert row["low"] < row["difference"] < row["high"]
        assert row["p"] <= row["p_holm"]
    half = rows[rows["fraction"] == 0.5].groupby("order")["score"].mean()
    at = compared.pairs[compared.pairs["fraction"] == 0.5].iloc[0]
    assert at["difference"] == pytest.approx(half["first_to_last"] - half["reversed:first_to_last"])


def test_orders_whose_examples_all_agree_may_still_differ_on_others() -> None:
    rows = results(orders=ORDERS[:2])
    rows["score"] = 0.7
    rows["influence"] = [np.zeros(20)] * len(rows)
    compared = compare_orders(rows, {})
    assert compared is not None
    for row in compared.pairs.to_dict("records"):
        assert (row["low"], row["high"]) == pytest.approx((-3.84 / 20, 3.84 / 20), abs=1e-3)


def test_orders_are_alike_as_far_as_they_are_known() -> None:
    compared = compare_orders(frame(), found())
    assert compared is not None
    rows = compared.pairs.set_index(["order", "other", "fraction"])
    turned, drawn = ("first_to_last", "reversed:first_to_last"), ("first_to_last", "random")
    assert rows.loc[(*turned, np.nan), "kendall_tau"].item() == pytest.approx(-1)
    assert rows.loc[(*turned, 0.5), "kept_by_both"].item() == 0
    assert abs(rows.loc[(*drawn, np.nan), "kendall_tau"].item()) < 0.2
    assert rows.loc[(*drawn, 0.0625), "kept_by_chance"].item() == pytest.approx(4 / 72)
    assert rows.xs("lambda", level="other")["kendall_tau"].isna().all(), "nobody told its heads"


def test_only_what_is_better_beyond_chance_is_called_so() -> None:
    equal, apart = compare_orders(frame(), {}), compare_orders(frame(better=0.2), {})
    assert equal is not None
    assert apart is not None
    assert not equal.means["beyond_chance"].any()
    assert set(equal.against_first()["verdict"]) == {NOT_TOLD}
    verdicts = apart.against_first().set_index("order")["verdict"]
    assert verdicts["lambda"] == BETTER
    assert verdicts["random"] == NOT_TOLD
    told = apart.each_way().groupby("order")["verdict"].value_counts()
    assert told["lambda"].to_dict() == {BETTER: 3}
    assert (told.xs(WORSE, level="verdict") == 1).all()


def test_holm_goes_over_pairs_with_random_orders_and_over_all_others() -> None:
    compared = compare_orders(frame(better=0.004), {})
    assert compared is not None
    means = compared.means
    drawn = (means["order"] == "random") | (means["other"] == "random")
    assert (drawn.sum(), (~drawn).sum()) == (3, 3)
    for family in (means[drawn], means[~drawn]):
        assert family["p_holm"].tolist() == pytest.approx(holm(family["p"].tolist()))
    assert means["p_holm"].tolist() != pytest.approx(holm(means["p"].tolist()))


def test_one_order_or_no_fraction_between_is_no_comparison() -> None:
    assert compare_orders(results(), {}) is None
    assert compare_orders(results(orders=ORDERS, fractions=(1, 0)), {}) is None
    alone = compare_orders(results(orders=ORDERS, seeds=(0,)), {})
    assert alone is not None
    assert not alone.means["beyond_chance"].any(), "one seed tells nothing"


def test_the_report_has_a_section_of_them(tmp_path: Path) -> None:
    rows = frame(better=0.2)
    write_report(tmp_path, study(rows), rows, summarise(rows), extras=Extras(orders=found()))
    stored = pandas.read_csv(tmp_path / "orders.csv")
    assert list(stored) == list(ORDER_COLUMNS)
    assert stored["beyond_chance"].sum() == 3
    text = (tmp_path / "report.md").read_text()
    assert "Of the differences between two head orders 3 of 6 (reviews) are beyond chance" in text
    own = next(line for line in text.splitlines() if "12.3 |" in line)
    assert [cell.strip() for cell in own.split("|")[-5:-1]] == ["0", "1", "12.3", "5"]
    assert "| first layer to last           | first layer to last, reversed |" in text
    page = (tmp_path / "report.html").read_text()
    assert page.count("Head orders told apart") == 2, "in the list of sections and above its own"
    assert 'data-chart="orders-reviews"' in page
    assert "<summary>Head orders, two at a time</summary>" in page
