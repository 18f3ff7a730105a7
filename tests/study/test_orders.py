"""The head orders that the report of a finished study compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

from papa.scores.orders import kendall_tau
from papa.spec.orders import head_order
from tests.finished import finish_study
from tests.flows.conftest import TINY, write_study

pytestmark = pytest.mark.server


def test_orders_are_those_that_cells_followed_with_what_they_took(
    shallow: str, tmp_path: Path
) -> None:
    orders = ["lambda", "random", "reversed:first_to_last"]
    asked = {"encoders": [shallow], "orders": orders, "seeds": [0, 1]}
    finish_study(write_study(tmp_path, TINY | asked), tmp_path / "store")
    folder = tmp_path / "store" / "studies" / "small"
    found = pandas.read_csv(folder / "orders.csv").set_index(["order", "other", "fraction"])
    layers = head_order("reversed:first_to_last", None, 2, 12)
    # A study's random orders are drawn from the first ranking seed and each seed of the study.
    drawn = [kendall_tau(head_order("random", None, 2, 12, (0, seed)), layers) for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    told = found.loc[("random", "reversed:first_to_last", np.nan), "kendall_tau"].item()
    assert told == pytest.approx(np.mean(drawn))
    assert found["kept_by_both"].dropna().between(0, 1).all()
    assert len(found["kept_by_both"].dropna()) == 3
    work = pandas.read_csv(folder / "order_scores.csv").set_index("order")
    assert work.loc["lambda", "seconds"] > 0
    assert work.loc["lambda", "evaluations"] == 1, "one epoch with one ranking seed"
    assert work.loc["random", ["seconds", "evaluations"]].isna().all()
