"""Sentences and a table of joint effects: whether heads, and which pairs, replace each other."""

import math
import re

import pandas
import pytest

from papa.reporting.redundancy import effects_table, redundancy_sentences
from tests.reporting.studies import joint_effects


def conclusion(difference: float, p: float) -> str:
    """What a sentence says of a redundancy after its numbers."""
    sentence, _ = redundancy_sentences(joint_effects(difference, p))
    return sentence.partition(";")[2].partition(":")[2]


def test_redundancy_is_concluded_from_its_test() -> None:
    more, less, no_difference = conclusion(0.2, 0.04), conclusion(-0.2, 0.04), conclusion(0.2, 0.06)
    assert len({more, less, no_difference}) == 3
    assert conclusion(-0.2, 0.06) == no_difference


def test_redundancy_without_a_test_is_unknown() -> None:
    sentence, _ = redundancy_sentences(joint_effects(p=float("nan")))
    assert "unknown" in sentence
    assert "54" in sentence, "the largest set that is not all heads"


def test_pairs_without_a_test_are_counted_apart() -> None:
    effects = joint_effects()
    effects.loc[[3, 4], "p_holm"] = math.nan
    _, sentence = redundancy_sentences(effects)
    assert "7 pairs" in sentence
    assert "correction for 5" in sentence


def test_a_set_that_rounds_to_all_heads_is_none_of_the_first_heads() -> None:
    effects = joint_effects()
    effects.loc[2, ["fraction", "count"]] = [0.0, 72]
    effects.loc[1, ["fraction", "count"]] = [0.0625, 72]
    sentence, _ = redundancy_sentences(effects)
    assert "the 9 heads" in sentence
    assert [row["Constant heads"] for row in effects_table(effects).records] == ["9", "72"]


@pytest.mark.parametrize(
    ("difference", "p_holm", "expected"),
    [(0.2, 0.01, [6, 5, 4, 3, 2]), (0.2, 0.06, []), (-0.2, 0.01, []), (0.2, float("nan"), [])],
    ids=["significant", "not significant", "cheaper together", "no interval"],
)
def test_significant_pairs_of_the_largest_redundancy_are_named(
    difference: float, p_holm: float, expected: list[int]
) -> None:
    _, sentence = redundancy_sentences(joint_effects(difference, p_holm=p_holm))
    assert [int(head) for head in re.findall(r"L0H0 \+ L1H(\d)", sentence)] == expected
    assert ("2 more" in sentence) == bool(expected)
    assert ("unknown" in sentence) == math.isnan(p_holm)


@pytest.mark.parametrize(("p_holm", "expected"), [(0.01, [6, 5, 4, 3, 2]), (0.06, [])])
def test_joint_effects_have_rows_of_significant_pairs_of_each_task(
    p_holm: float, expected: list[int]
) -> None:
    effects = joint_effects(p_holm=p_holm)
    table = effects_table(pandas.concat([effects, effects.assign(task="cola")]))
    sets = ["9", "36", "54", *(f"L0H0 + L1H{head}" for head in expected)]
    rows = [(task, heads) for task in ("reviews", "cola") for heads in sets]
    assert [(line["Task"], line["Constant heads"]) for line in table.records] == rows
