"""The page on methods shows what was measured on planted models."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from benchmarks.planted.scores import area_under_curve
from benchmarks.planted.tables import MARKER, PAGE, RESULTS, page_tables


def test_the_page_has_the_tables_of_the_measured_file() -> None:
    _, tables, _ = PAGE.read_text().split(MARKER)
    assert tables.strip() == page_tables(pandas.read_csv(RESULTS))


@pytest.mark.parametrize(
    ("scores", "area"),
    [
        ([1.0, 0.2, 0.3], 1.0),
        ([0.1, 0.2, 0.3], 0.0),
        ([0.2, 0.2, 0.2], 0.5),
        ([0.2, 0.1, 0.3], 0.5),
    ],
    ids=["right", "reversed", "ties", "half"],
)
def test_area_under_curve_counts_pairs_in_order(scores: list[float], area: float) -> None:
    needed = np.array([True, False, False])
    assert area_under_curve(np.array(scores), needed) == pytest.approx(area)
