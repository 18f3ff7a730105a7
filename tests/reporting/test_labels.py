"""How numbers and names are written."""

from __future__ import annotations

import math

import pytest

from papa.reporting.wording import (
    fixed_caption,
    fraction_label,
    joined,
    order_label,
    percent_label,
    score_label,
)
from tests.reporting.studies import results


@pytest.mark.parametrize(
    ("fraction", "label"),
    [
        (1.0, "1"),
        (0.5, "1/2"),
        (0.125, "1/8"),
        (0.0625, "1/16"),
        (0.0, "0"),
        (0.75, "3/4"),
        (1 / 3, "1/3"),
        (0.37, "0.37"),
    ],
)
def test_fractions_are_written_as_in_the_paper(fraction: float, label: str) -> None:
    assert fraction_label(fraction) == label


def test_scores_carry_half_their_interval() -> None:
    assert score_label(0.76543, 0.75, 0.78) == "0.765 ± 0.015"
    assert score_label(0.998, 0.97, 1.0) == "0.998 (0.970 to 1.000)"
    assert score_label(0.76543) == "0.765"
    assert score_label(-0.0001, -0.0102, 0.01) == "0.000 ± 0.010", "no sign"
    assert score_label(math.nan) == "–"


def test_a_drop_that_rounds_to_nothing_has_no_sign() -> None:
    assert percent_label(-0.0001) == "0.0 %"
    assert percent_label(-0.0123) == "-1.2 %"
    assert percent_label(math.nan) == "–"


def test_two_files_of_scores_with_one_name_have_two_labels() -> None:
    assert order_label("scores:a/heads.tsv") == "scores of a/heads.tsv"
    assert order_label("reversed:scores:b/heads.tsv") == "scores of b/heads.tsv, reversed"


def test_lists_are_joined_as_in_a_sentence() -> None:
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"


def test_the_order_is_named_only_where_it_matters() -> None:
    assert fixed_caption(results()) == "all-MiniLM-L6-v2 · reviews · average · λ ascending"
    assert fixed_caption(results(fractions=(1.0, 0.0))) == "all-MiniLM-L6-v2 · reviews · average"
