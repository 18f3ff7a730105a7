"""Sentences on what a study shows: drops with their intervals, and where nothing is significant."""

import math
import re
from collections.abc import Callable
from functools import partial

import pandas
import pytest

from papa.reporting.answers import answers, redundancy
from papa.scores.summary import summarise
from tests.reporting.studies import joint_effects, results


def scored(
    score: dict[float, float], results_of: Callable[..., pandas.DataFrame] = results
) -> pandas.DataFrame:
    frame = results_of(fractions=tuple(score)).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def test_a_sentence_has_the_drop_with_its_interval() -> None:
    frame = scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})
    frame["score"] += [0.0, 0.01, -0.01, 0.0, 0.0, 0.0, 0.008, 0.002, -0.01]
    (sentence,) = answers(summarise(frame))
    assert all(number in sentence for number in ("0.800", "0.776", "3.0 ± 2.5 %", "0.500", "0.600"))


def test_the_drop_of_an_original_near_zero_is_absolute() -> None:
    frame = scored({1.0: 0.03, 0.0: 0.001}, partial(results, tasks=(("cola", "matthews"),)))
    frame["score"] += frame["seed"] * 0.005
    frame = frame.assign(always_one_answer=-0.2, word_embeddings=-0.1)
    assert summarise(frame)["relative_drop"].iloc[1:].isna().all()
    (sentence,) = answers(summarise(frame))
    assert "0.029" in sentence
    assert "%" not in sentence


@pytest.mark.parametrize(
    "frame",
    [
        # A task of which 65 % is one class, on which every probe answers that class.
        scored({1.0: 0.65, 0.0: 0.65}).assign(word_embeddings=0.65),
        scored({1.0: 0.65, 0.0: 0.65}).assign(always_one_answer=0.65),
        scored({1.0: 0.8, 0.0: 0.8}, partial(results, seeds=(0,))),
        scored({0.0: 0.7}),
    ],
    ids=["word embeddings", "one answer", "one seed", "no original"],
)
def test_no_drop_is_told_where_nothing_is_significant(frame: pandas.DataFrame) -> None:
    (sentence,) = answers(summarise(frame))
    assert "drop" not in sentence
    assert "inconclusive" in sentence


def test_mean_drops_of_encoders_leave_out_what_is_not_significant() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"), ("rte", "accuracy"), ("mlm", "accuracy"))
    frame = scored({1.0: 0.8, 0.0: 0.72}, partial(results, ("a", "b"), tasks))
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "sst2"), "word_embeddings"] = 0.9
    frame.loc[frame["task"] == "mlm", "score"] -= 2
    frame.loc[frame["task"] == "rte", "score"] = frame["fraction"].map({1.0: 1.0, 0.0: 0.4})
    sentence = answers(summarise(frame))[-1]
    # Over cola and rte: the mean of 10 % and 60 %, and the drop of the mean, .9 to .56.
    assert sentence.count("35.0 %") == sentence.count("37.8 %") == 2
    left_out = sentence.partition("left out")[2]
    assert "sst2" in left_out
    assert "mlm" in left_out


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
