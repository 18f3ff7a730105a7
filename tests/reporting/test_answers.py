"""The sentences that answer a study's question."""

from __future__ import annotations

import re
from typing import Any

import pandas
import pytest

from papa.reporting.answers import answers
from papa.scores.summary import summarise
from tests.reporting.studies import results


def scored(score: dict[float, float], **changes: Any) -> pandas.DataFrame:
    """Results whose seeds all score alike."""
    frame = results(**{"fractions": tuple(score), **changes}).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def told(frame: pandas.DataFrame) -> list[str]:
    return [re.sub(r" ± [0-9.]*[0-9]", "", sentence) for sentence in answers(summarise(frame))]


def test_a_sentence_tells_what_every_head_constant_leaves() -> None:
    frame = scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})
    assert told(frame) == [
        "all-MiniLM-L6-v2 on reviews: accuracy 0.800 with every head input-dependent; 0.776 with "
        "every head constant, drop 3.0 %; always 'negative' scores 0.500, word embeddings alone "
        "0.600."
    ]
    frame["score"] += [0.0, 0.01, -0.01, 0.0, 0.0, 0.0, 0.008, 0.002, -0.01]
    assert "drop 3.0 ± 2.5 %;" in answers(summarise(frame))[0]


def test_of_an_original_near_zero_no_share_is_told_but_the_difference() -> None:
    frame = scored({1.0: 0.03, 0.0: 0.001}, tasks=(("cola", "matthews"),))
    frame["score"] += frame["seed"] * 0.005
    frame = frame.assign(always_one_answer=-0.2, word_embeddings=-0.1)
    assert summarise(frame)["relative_drop"].iloc[1:].isna().all()
    (sentence,) = told(frame)
    assert "0.006 with every head constant, drop 0.029 absolute;" in sentence


def test_kinds_of_constants_share_a_sentence_and_orders_where_they_matter() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.776}, constants=("average", "zeros"))
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0), "score"] = 0.6
    (sentence,) = told(frame)
    assert "0.776 with every head constant (average), drop 3.0 %; 0.600 with" in sentence
    orders = ("lambda", "random")
    (sentence,) = told(results(orders=orders))
    assert "λ" not in sentence
    (sentence,) = told(results(orders=orders, fractions=(1.0, 0.0625)))
    assert " at 1/16 (λ ascending), drop " in sentence
    assert " at 1/16 (random), drop " in sentence


NOT_BEATEN = "the original does not beat {} by more than its interval"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        # A task of which 65 % is one class, on which every probe answers that class.
        (
            scored({1.0: 0.65, 0.0: 0.65}).assign(word_embeddings=0.65),
            NOT_BEATEN.format("word embeddings alone"),
        ),
        (
            scored({1.0: 0.65, 0.0: 0.65}).assign(always_one_answer=0.65),
            NOT_BEATEN.format("always one answer"),
        ),
        (scored({1.0: 0.8, 0.0: 0.8}, seeds=(0,)), "one seed has no interval"),
        (scored({0.0: 0.7}), "the study has no fraction 1"),
    ],
)
def test_what_tells_nothing_is_no_finding(frame: pandas.DataFrame, reason: str) -> None:
    (sentence,) = told(frame)
    assert "drop" not in sentence
    assert sentence.endswith(f"what constant heads cost cannot be told: {reason}.")
    assert ("accuracy; 0.700 with every head const" in sentence) == (len(set(frame.fraction)) == 1)


def test_several_encoders_get_their_mean_drops_without_what_tells_nothing() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"), ("rte", "accuracy"), ("mlm", "accuracy"))
    frame = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a", "b"), tasks=tasks)
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "sst2"), "word_embeddings"] = 0.9
    frame.loc[frame["task"] == "mlm", "score"] -= 2
    frame.loc[frame["task"] == "rte", "score"] = frame["fraction"].map({1.0: 1.0, 0.0: 0.4})
    assert told(frame)[-1] == (
        "The mean relative drop over tasks with every head constant, and the drop of the mean "
        "score: a 35.0 % and 37.8 %, b 35.0 % and 37.8 %; left out: sst2 (b: the original does "
        "not beat its baselines); left out: mlm (a drop in percent needs positive scores)."
    )
    assert len(told(scored({1.0: 0.8, 0.0: 0.72}, tasks=tasks))) == 4, "no mean for one encoder"
