"""The sentences that answer a study's question."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas
import pytest

from papa.ranking.seeds import TrainedLambda
from papa.reporting.answers import answers, certainty
from papa.scores.summary import summarise
from tests.reporting.studies import results

WORTH = "always 'negative' scores 0.500, word embeddings alone 0.600"


def scored(score: dict[float, float], **changes: Any) -> pandas.DataFrame:
    """Results whose seeds all score alike."""
    frame = results(**{"fractions": tuple(score), **changes}).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def told(frame: pandas.DataFrame) -> list[str]:
    return [re.sub(r" ± [0-9.]*[0-9]", "", sentence) for sentence in answers(summarise(frame))]


def test_a_sentence_tells_what_every_head_constant_leaves() -> None:
    assert told(scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})) == [
        "all-MiniLM-L6-v2 on reviews: accuracy 0.800 with every head input-dependent; 0.776 with "
        f"every head constant, drop 3.0 %; {WORTH}."
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


@pytest.mark.parametrize(
    ("baseline", "name"),
    [("word_embeddings", "word embeddings alone"), ("always_one_answer", "always one answer")],
)
def test_a_probe_that_learned_nothing_is_no_finding(baseline: str, name: str) -> None:
    """A task of which 65 % is one class, on which every probe answers that class."""
    (sentence,) = told(scored({1.0: 0.65, 0.0: 0.65}).assign(**{baseline: 0.65}))
    assert "drop" not in sentence
    assert sentence.endswith(
        f"what constant heads cost cannot be told: the original does not beat {name} by more than "
        "its interval."
    )


def test_one_seed_is_no_finding() -> None:
    (sentence,) = told(scored({1.0: 0.8, 0.0: 0.8}, seeds=(0,)))
    assert "drop" not in sentence
    assert sentence.endswith("cannot be told: one seed has no interval.")


def test_without_the_original_only_the_score_is_told() -> None:
    (sentence,) = told(scored({0.0: 0.7}))
    assert sentence.startswith("all-MiniLM-L6-v2 on reviews: accuracy; 0.700 with every head const")
    assert "drop" not in sentence


MANY = {"encoders": ("a", "b"), "tasks": (("cola", "matthews"), ("sst2", "accuracy"))}


def test_several_encoders_and_tasks_get_their_average_drop() -> None:
    last = told(scored({1.0: 0.8, 0.0: 0.72}, **MANY))[-1]
    assert last == "On average over 4 pairs of encoder and task, the relative drop is 10.0 %."


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
        "On average over 3 pairs of encoder and task, the relative drop is 10.0 %; left out: a on "
        "mlm (no share of a negative log-perplexity); left out: a on rte (an original below 0.1); "
        "left out: a on own (measured against its own answers); left out: b on sst2 (does not beat "
        "word embeddings alone); left out: b on mlm (no share of a negative log-perplexity); left "
        "out: b on rte (an original below 0.1)."
    )


def test_no_average_where_fewer_than_two_can_be_averaged() -> None:
    frame = scored({1.0: 0.8, 0.0: 0.72}, encoders=("a", "b"))
    frame.loc[frame["encoder"] == "b", "word_embeddings"] = 0.9
    assert told(frame)[-1] == (
        "On average over 1 pairs of encoder and task, too few drops are left; left out: b on "
        "reviews (does not beat word embeddings alone)."
    )


def test_certainty_of_an_order_is_a_sentence() -> None:
    falling = np.linspace(0.9, 0.1, 24).reshape(1, 2, 12)
    alike = TrainedLambda({seed: falling + 0.01 * seed for seed in (0, 1, 2)})
    sentence = certainty(alike.facts([1, 0.5, 0]))
    assert "Over 3 seeds the head order by λ is reproducible: Kendall's τ is 1.00" in sentence
    assert "two seeds share 100 % at 1/2 (by chance 50 %). Seeds share their rows" in sentence
    noise = np.random.default_rng(0).random((3, 1, 2, 12))
    apart = TrainedLambda(dict(enumerate(noise)))
    assert "cannot be told from chance" in certainty(apart.facts([0.5]))
    one = TrainedLambda({0: falling})
    assert certainty(one.facts([0.5])) == "λ is from one seed: nothing is known of its certainty."
