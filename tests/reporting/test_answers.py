"""The sentences that answer a study's question."""

from __future__ import annotations

from papa.reporting.answers import answers
from papa.reporting.tables import summarise
from tests.reporting.studies import results


def test_one_sentence_tells_what_is_kept_with_every_head_constant() -> None:
    frame = results(fractions=(1.0, 0.5, 0.0))
    frame["score"] = frame["fraction"].map({1.0: 0.8, 0.5: 0.79, 0.0: 0.776})
    assert answers(summarise(frame)) == [
        "With every head constant, all-MiniLM-L6-v2 keeps 97 % of its score on reviews "
        "(accuracy 0.776 instead of 0.800)."
    ]


def test_kinds_of_constants_share_a_sentence() -> None:
    frame = results(constants=("average", "zeros"), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: 0.8, 0.0: 0.776})
    frame.loc[(frame["constants"] == "zeros") & (frame["fraction"] == 0), "score"] = 0.6
    assert answers(summarise(frame)) == [
        "With every head constant, all-MiniLM-L6-v2 keeps 97 % (average) and 75 % (zeros) of its score "
        "on reviews (accuracy 0.800 before)."
    ]


def test_orders_are_told_apart_only_where_they_matter() -> None:
    orders = ("lambda", "random")
    (told,) = answers(summarise(results(orders=orders)))
    assert "λ" not in told
    (told,) = answers(summarise(results(orders=orders, fractions=(1.0, 0.125))))
    assert told.startswith("With 1/8 of the heads on their own attention, all-MiniLM-L6-v2 keeps ")
    assert "% (λ ascending) and " in told
    assert "% (random) of its score" in told


def test_a_share_of_a_negative_score_is_not_claimed() -> None:
    frame = results(tasks=(("mlm", "negative_log_perplexity"),), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: -2.0, 0.0: -3.0})
    assert answers(summarise(frame)) == [
        "With every head constant, all-MiniLM-L6-v2 goes from -2.000 to -3.000 on mlm (negative log-perplexity)."
    ]


def test_several_encoders_and_tasks_get_their_average_drop() -> None:
    frame = results(("a", "b"), (("cola", "matthews"), ("sst2", "accuracy")), fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: 0.8, 0.0: 0.72})
    assert answers(summarise(frame))[-1] == "On average over 2 encoders and 2 tasks, the relative drop is 10.0 %."


def test_without_the_original_only_the_score_is_told() -> None:
    frame = results(fractions=(0.0,)).assign(score=0.7)
    told = answers(summarise(frame))
    assert told == ["With every head constant, all-MiniLM-L6-v2 scores 0.700 on reviews (accuracy)."]


def test_a_small_change_is_not_rounded_away() -> None:
    frame = results(fractions=(1.0, 0.0))
    frame["score"] = frame["fraction"].map({1.0: 0.921, 0.0: 0.917})
    (told,) = answers(summarise(frame))
    assert "keeps 99.6 % of its score" in told
