"""How numbers and names are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from papa.reporting.wording import fraction_label, order_label, percent_label, score_label


@pytest.mark.parametrize(
    ("written", "values", "label"),
    [
        (fraction_label, (1.0,), "1"),
        (fraction_label, (0.0625,), "1/16"),
        (fraction_label, (0.0,), "0"),
        (fraction_label, (0.75,), "3/4"),
        (fraction_label, (1 / 3,), "1/3"),
        (fraction_label, (0.37,), "0.37"),
        (score_label, (0.76543, 0.75, 0.78), "0.765 ± 0.015"),
        (score_label, (0.998, 0.97, 1.0), "0.998 (0.970 to 1.000)"),
        (score_label, (0.76543,), "0.765"),
        (score_label, (-0.0001, -0.0102, 0.01), "0.000 ± 0.010"),
        (score_label, (math.nan,), "–"),
        (percent_label, (-0.0001,), "0.0 %"),
        (percent_label, (-0.0123,), "-1.2 %"),
        (percent_label, (math.nan,), "–"),
        (order_label, ("scores:a/heads.tsv",), "scores of a/heads.tsv"),
        (order_label, ("reversed:scores:b/heads.tsv",), "scores of b/heads.tsv, reversed"),
    ],
)
def test_numbers_and_names_are_written_as_in_the_paper(
    written: Callable[..., str], values: tuple[Any, ...], label: str
) -> None:
    assert written(*values) == label
