"""The sentences that answer a study's question."""

from __future__ import annotations

import re
from typing import Any

import pandas
import pytest

from papa.reporting.answers import answers
from papa.reporting.summary import summarise
from tests.reporting.studies import results

WORTH = "always 'negative' scores 0.500, word embeddings alone 0.600"


def scored(score: dict[float, float], **changes: Any) -> pandas.DataFrame:
    """Results whose seeds all score alike."""
    frame = results(**{"fractions": tuple(score), **changes}).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def told(frame: pandas.DataFrame) -> list[str]:
    return [re.sub(r" ± [0-9.]+", "", sentence) for sentence in answers(summarise(frame))]


def test_one_sentence_tells_what_is_kept_with_every_head_constant() -> None:
    assert told(scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})) == [
        "With every head constant, all-MiniLM-L6-v2 keeps 97 % of its score on reviews "
        f"(accuracy 0.776 instead of 0.800, drop 3.0 %; {WORTH})."
    ]


def test_the_drop_is_told_with_its_interval() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.776})
    frame["score"] += [0.0, 0.01, -0.01, 0.008, 0.002, -0.01]
    (sentence,) = answers(summarise(frame))
    assert "drop 3.0 ± 2.5 %;" in sentence


def test_of_an_original_near_zero_no_share_is_told_but_the_difference() -> None:
    frame = scored({1.0: 0.03, 0.0: 0.001}, tasks=(("cola", "matthews"),))
    frame["score"] += frame["seed"] * 0.005
    frame = frame.assign(always_one_answer=-0.2, word_embeddings=-0.1)
    assert summarise(frame)["relative_drop"].iloc[1:].isna().all()
    (sentence,) = told(frame)
    assert "goes from 0.035 to 0.006 on cola (Matthews; drop 0.029 absolute;" in sentence


def test_kinds_of_constants_share_a_sentence() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.776}, constants=("average", "zeros"))
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0), "score"] = 0.6
    assert told(frame) == [
        "With every head constant, all-MiniLM-L6-v2 keeps 97 % (average, drop 3.0 %) and 75 % "
        f"(zeros, drop 25.0 %) of its score on reviews (accuracy 0.800 before; {WORTH})."
    ]


def test_orders_are_told_apart_only_where_they_matter() -> None:
    orders = ("lambda", "random")
    (sentence,) = told(results(orders=orders))
    assert "λ" not in sentence
    (sentence,) = told(results(orders=orders, fractions=(1.0, 0.0625)))
    assert sentence.startswith(
        "With 1/16 (5.6 %) of the heads input-dependent, all-MiniLM-L6-v2 keeps "
    )
    assert "% (λ ascending, drop " in sentence
    assert "% (random, drop " in sentence


def test_a_share_of_a_negative_score_is_not_claimed() -> None:
    frame = scored({1.0: -2.0, 0.0: -3.0}, tasks=(("mlm", "negative_log_perplexity"),)).assign(
        word_embeddings=-6.0
    )
    assert told(frame) == [
        "With every head constant, all-MiniLM-L6-v2 goes from -2.000 to -3.000 on mlm (negative "
        "log-perplexity; relative drop 50.0 %; always one answer scores -7.000, word embeddings "
        "alone -6.000)."
    ]


@pytest.mark.parametrize(
    ("baseline", "name"),
    [("word_embeddings", "word embeddings alone"), ("always_one_answer", "always one answer")],
)
def test_a_probe_that_learned_nothing_is_no_finding(baseline: str, name: str) -> None:
    """A task of which 65 % is one class, on which every probe answers that class."""
    (sentence,) = told(scored({1.0: 0.65, 0.0: 0.65}).assign(**{baseline: 0.65}))
    assert "keeps" not in sentence
    assert sentence.startswith(
        "On reviews the study cannot tell what constant heads cost all-MiniLM-L6-v2: the original "
        f"does not beat {name} by more than its interval (accuracy 0.650 with every head "
    )


def test_one_seed_is_no_finding() -> None:
    (sentence,) = told(scored({1.0: 0.8, 0.0: 0.8}, seeds=(0,)))
    assert "keeps" not in sentence
    assert "one seed has no interval" in sentence


MANY = {"encoders": ("a", "b"), "tasks": (("cola", "matthews"), ("sst2", "accuracy"))}


def test_several_encoders_and_tasks_get_their_average_drop() -> None:
    last = told(scored({1.0: 0.8, 0.0: 0.72}, **MANY))[-1]
    assert last == "On average over 2 encoders and 2 tasks, the relative drop is 10.0 %."


def test_averages_leave_out_what_tells_nothing_and_say_so() -> None:
    tasks = (*MANY["tasks"], ("mlm", "negative_log_perplexity"), ("rte", "matthews"))
    frame = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a", "b"), tasks=tasks)
    itself = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a",), tasks=(("own", "agreement"),))
    frame = pandas.concat([frame, itself], ignore_index=True)
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "sst2"), "word_embeddings"] = 0.9
    rte = frame["task"] == "rte"
    frame.loc[rte, ["always_one_answer", "word_embeddings"]] = 0.0
    # A tenth of it is lost; seeds agree, so it is above its baselines and still near nothing.
    frame.loc[rte, "score"] = frame.loc[rte, "fraction"].map({1.0: 0.05, 0.0: 0.0})
    assert told(frame)[-1] == (
        "On average over 3 pairs of encoder and task, the relative drop is 10.0 %. Left out of "
        "averages: a on mlm (no share of a negative log-perplexity); a on rte (an original below "
        "0.1); a on own (measured against its own answers); b on sst2 (does not beat word "
        "embeddings alone); b on mlm (no share of a negative log-perplexity); b on rte (an "
        "original below 0.1)."
    )


def test_no_average_where_fewer_than_two_can_be_averaged() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a", "b"))
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    assert told(frame)[-1] == (
        "No average of relative drops: fewer than two can be averaged. Left out of averages: b on "
        "reviews (does not beat word embeddings alone)."
    )


def test_without_the_original_only_the_score_is_told() -> None:
    assert told(scored({0.0: 0.7})) == [
        f"With every head constant, all-MiniLM-L6-v2 scores 0.700 on reviews (accuracy; {WORTH})."
    ]


def test_a_small_change_is_not_rounded_away() -> None:
    (sentence,) = told(scored({1.0: 0.921, 0.0: 0.917}))
    assert "keeps 99.6 % of its score" in sentence
