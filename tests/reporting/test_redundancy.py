"""Sentences and a table of joint effects: whether heads, and which pairs, replace each other."""

import math
import re

import pandas
import pytest

from papa.reporting.redundancy import effects_table, redundancy
from tests.reporting.studies import joint_effects


def conclusion(difference: float, half: float = 0.05) -> str:
    """What a sentence says of a redundancy after its numbers."""
    sentence, _ = redundancy(joint_effects(difference, half))
    return sentence.partition(";")[2].partition(":")[2]


def test_redundancy_is_concluded_from_its_interval() -> None:
    signs = [conclusion(difference) for difference in (0.2, 0.0, -0.2)]
    assert len(set(signs)) == 3
    assert conclusion(0.2, half=0.3) == conclusion(0.0)


@pytest.mark.parametrize("half", [float("nan"), 0.0], ids=["no interval", "no spread"])
def test_redundancy_without_an_interval_is_unknown(half: float) -> None:
    sentence, _ = redundancy(joint_effects(0.2, half))
    assert "unknown" in sentence
    assert "54" in sentence, "the largest set that is not all heads"


@pytest.mark.parametrize(
    ("difference", "p_holm", "expected"),
    [(0.2, 0.01, [6, 5, 4, 3, 2]), (0.2, 0.06, []), (-0.2, 0.01, []), (0.2, float("nan"), [])],
    ids=["significant", "not significant", "cheaper together", "no interval"],
)
def test_significant_pairs_of_the_largest_redundancy_are_named(
    difference: float, p_holm: float, expected: list[int]
) -> None:
    _, sentence = redundancy(joint_effects(difference, p_holm=p_holm))
    assert [int(head) for head in re.findall(r"0\.0 \+ 1\.(\d)", sentence)] == expected
    assert ("2 more" in sentence) == bool(expected)
    assert ("unknown" in sentence) == math.isnan(p_holm)


@pytest.mark.parametrize(("p_holm", "expected"), [(0.01, [6, 5, 4, 3, 2]), (0.06, [])])
def test_joint_effects_have_rows_of_significant_pairs_of_each_task(
    p_holm: float, expected: list[int]
) -> None:
    effects = joint_effects(p_holm=p_holm)
    table = effects_table(pandas.concat([effects, effects.assign(task="cola")]))
    sets = ["9", "36", "54", *(f"0.0 + 1.{head}" for head in expected)]
    rows = [(task, heads) for task in ("reviews", "cola") for heads in sets]
    assert [(line["Task"], line["Constant heads"]) for line in table.lines] == rows
