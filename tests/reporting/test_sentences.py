"""Sentences on what a study shows: drops with their intervals, and where nothing is significant."""

import re
from collections.abc import Callable
from functools import partial

import pandas
import pytest

from papa.reporting.sentences import (
    method_sentences,
    orders_note,
    score_sentences,
    seed_warnings,
)
from papa.scores.order_comparison import compare_orders
from papa.scores.summary import summarise
from papa.spec.study import SubstituteSpec
from tests.reporting.studies import results, study


def scored(
    score: dict[float, float], results_of: Callable[..., pandas.DataFrame] = results
) -> pandas.DataFrame:
    frame = results_of(fractions=tuple(score)).assign(word_embeddings=0.6)
    return frame.assign(score=frame["fraction"].map(score))


def test_a_sentence_has_the_drop_with_its_interval() -> None:
    frame = scored({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})
    frame["score"] += [0.0, 0.01, -0.01, 0.0, 0.0, 0.0, 0.008, 0.002, -0.01]
    (sentence,) = score_sentences(summarise(frame))
    assert all(number in sentence for number in ("0.800", "0.776", "3.0 ± 2.5 %", "0.500", "0.600"))


@pytest.mark.parametrize(("seeds", "warned"), [((0, 1), True), ((0, 1, 2), False), ((0,), False)])
def test_intervals_over_two_seeds_are_warned_of(seeds: tuple[int, ...], warned: bool) -> None:
    assert bool(seed_warnings(results(seeds=seeds))) == warned
    assert not seed_warnings(results(seeds=seeds).assign(score=0.8)), "a native head"


def test_the_drop_of_an_original_near_zero_is_absolute() -> None:
    frame = scored({1.0: 0.03, 0.0: 0.001}, partial(results, tasks=(("cola", "matthews"),)))
    frame["score"] += frame["seed"] * 0.005
    frame = frame.assign(always_one_answer=-0.2, word_embeddings=-0.1)
    assert summarise(frame)["relative_drop"].iloc[1:].isna().all()
    (sentence,) = score_sentences(summarise(frame))
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
    (sentence,) = score_sentences(summarise(frame))
    assert "drop" not in sentence
    assert "inconclusive" in sentence


def test_mean_drops_of_encoders_leave_out_what_is_not_significant() -> None:
    tasks = (("cola", "matthews"), ("sst2", "accuracy"), ("rte", "accuracy"), ("mlm", "accuracy"))
    frame = scored({1.0: 0.8, 0.0: 0.72}, partial(results, ("a", "b"), tasks))
    frame.loc[(frame["encoder"] == "b") & (frame["task"] == "sst2"), "word_embeddings"] = 0.9
    frame.loc[frame["task"] == "mlm", "score"] -= 2
    frame.loc[frame["task"] == "rte", "score"] = frame["fraction"].map({1.0: 1.0, 0.0: 0.4})
    sentence = score_sentences(summarise(frame))[-1]
    # Over cola and rte: the mean of 10 % and 60 %, and the drop of the mean, .9 to .56.
    assert sentence.count("35.0 %") == sentence.count("37.8 %") == 2
    left_out = sentence.partition("left out")[2]
    assert "sst2" in left_out
    assert "mlm" in left_out


def test_the_method_of_a_native_head_names_no_probe() -> None:
    frame = results().assign(word_embeddings=float("nan"))
    of_probe = study(frame)
    tasks = tuple(task.model_copy(update={"head": "native"}) for task in of_probe.tasks)
    text = " ".join(method_sentences(of_probe.model_copy(update={"tasks": tasks}), frame))
    assert "native head" in text
    assert "probe" not in text
    assert "word embeddings" not in text
    assert "probe" in " ".join(method_sentences(of_probe, results()))


def test_the_method_of_a_replaced_output_names_no_matrix() -> None:
    substitutes = (SubstituteSpec(kind="mean_output"),)
    of_outputs = study(results()).model_copy(update={"substitutes": substitutes})
    text = " ".join(method_sentences(of_outputs, results()))
    assert "mean_output" in text
    assert "matrix" not in text


def test_random_lists_are_counted_for_each_encoder_by_itself() -> None:
    """One order beside random ones takes 19 lists, however many encoders the study has."""
    for encoders in (("a",), ("a", "b")):
        comparison = compare_orders(results(encoders, orders=("lambda", "random")), {})
        assert comparison is not None
        assert "19" in re.findall(r"\d+", orders_note(comparison.pairs))
