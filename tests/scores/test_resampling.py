"""The bootstrap over validation examples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from papa.scores.intervals import over_examples


def hits(correct: np.ndarray) -> np.ndarray:
    """Accuracy's counts [seeds, rows, 2] of right and wrong answers [seeds, rows]."""
    return np.stack([correct.astype(float), np.ones_like(correct, float)], axis=-1)


def test_the_interval_of_an_accuracy_is_the_binomials() -> None:
    correct = np.zeros((1, 400), bool)
    correct[0, :300] = True
    (found,) = over_examples("accuracy", [hits(correct)], None)
    half = 1.96 * math.sqrt(0.75 * 0.25 / 400)
    assert found.score == pytest.approx((0.75 - half, 0.75 + half), abs=0.006)
    assert all(math.isnan(end) for end in found.drop), "without an original there is no drop"


def test_original_and_point_are_resampled_together() -> None:
    """Every example that the point misses the original misses too, or nearly: the drop is sure, the scores are not."""
    draw = np.random.default_rng(0)
    original = draw.random((2, 500)) < 0.6
    point = original & (draw.random((2, 500)) < 0.95)
    kept, lost = over_examples("accuracy", [hits(original), hits(point)], 0)
    drop = 1 - point.mean() / original.mean()
    assert lost.drop[0] < drop < lost.drop[1]
    assert lost.drop[1] - lost.drop[0] < 0.5 * (lost.score[1] - lost.score[0]) / original.mean()
    assert kept.drop == (0, 0)
    # The same answers on other examples: pairing them would be wrong, and the interval shows how much it does.
    _, apart = over_examples("accuracy", [hits(original), hits(draw.permuted(point, axis=1))], 0)
    assert apart.drop[1] - apart.drop[0] > 2 * (lost.drop[1] - lost.drop[0])


def test_the_interval_covers_the_true_score_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        (found,) = over_examples("accuracy", [hits(draw.random((1, 200)) < 0.8)], None)
        covered += found.score[0] <= 0.8 <= found.score[1]
    assert covered / 200 == pytest.approx(0.95, abs=0.045)


def test_the_same_examples_give_the_same_interval_however_few_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = hits(np.random.default_rng(2).random((3, 90)) < 0.7)
    whole = over_examples("accuracy", [examples], 0)
    monkeypatch.setattr("papa.scores.intervals._DRAWN_AT_ONCE", 700)
    assert over_examples("accuracy", [examples], 0) == whole


def test_rank_correlation_is_resampled_too() -> None:
    draw = np.random.default_rng(3)
    labels = draw.normal(size=300)
    examples = np.stack([np.stack([labels + draw.normal(size=300), labels], axis=-1) for _ in range(2)])
    (found,) = over_examples("spearman", [examples], 0)
    assert 0.55 < found.score[0] < 0.7 < found.score[1] < 0.8


def test_a_drop_of_an_original_that_may_be_zero_has_no_interval() -> None:
    original = np.zeros((2, 30), bool)
    original[:, 0] = True
    found = over_examples("accuracy", [hits(original), hits(~original)], 0)
    assert all(math.isnan(end) for one in found for end in one.drop)
    assert found[1].score[0] > 0.8


def test_one_example_has_no_interval() -> None:
    (found,) = over_examples("accuracy", [hits(np.ones((2, 1), bool))], 0)
    assert all(math.isnan(end) for end in (*found.score, *found.drop))
