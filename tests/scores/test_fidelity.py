"""What a changed model keeps of its answers, by hand, against scipy, by leaving out, and in
simulation.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from papa.scores.answers import embedding_fidelity, mean_over_examples
from papa.scores.intervals import over_examples


def drawn(seed: int, rows: int, noise: float, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    before = draw.standard_normal((rows, width))
    return before, before + noise * draw.standard_normal((rows, width))


def angles(*degrees: float) -> np.ndarray:
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_four_sentences_by_hand() -> None:
    found = embedding_fidelity(3 * angles(0, 10, 40, 60), angles(0, 10, 40, 60 + 90))
    assert found["cosine"].mean == pytest.approx(3 / 4)
    # The third one's is the fourth before and the second after.
    assert found["nearest_1"].mean == 3 / 4
    before, after = [10, 40, 60, 30, 50, 20], [10, 40, 150, 30, 140, 110]
    assert found["similarities"].mean == pytest.approx(spearmanr(before, after)[0])
    assert "nearest_10" not in found


def test_a_turned_and_scaled_model_keeps_everything_and_another_one_nothing() -> None:
    before, other = drawn(0, 60, 0.5)[0], drawn(1, 60, 0.5)[0]
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    kept = embedding_fidelity(before, 7 * before @ turn)
    for name in ("similarities", "nearest_1", "nearest_10"):
        assert kept[name].mean == pytest.approx(1), name
    assert kept["cosine"].mean < 0.5
    chance = embedding_fidelity(before, other)
    assert chance["nearest_10"].low < 10 / 59 < chance["nearest_10"].high
    assert abs(chance["similarities"].mean) < 0.1


def test_without_a_sentence_all_of_its_pairs_are_left_out() -> None:
    before, after = drawn(3, 24, 0.6)
    before[5] = before[4]  # Two sentences that are the same.
    found = embedding_fidelity(before, after)
    others = [
        embedding_fidelity(*(np.delete(one, row, axis=0) for one in (before, after)))
        for row in range(24)
    ]
    for name, kept in found.items():
        without = np.array([other[name].mean for other in others])
        expected = over_examples(kept.mean, kept.mean - without)
        assert (kept.low, kept.high) == pytest.approx((expected.low, expected.high)), name


def test_intervals_stay_within_what_a_measure_can_be() -> None:
    one = mean_over_examples("agreement", np.ones(8, dtype=bool))
    assert one.low < one.mean == one.high == 1
    losses = mean_over_examples("loss_after", np.array([0.9, 1.1] * 4))
    assert 1 < losses.high < 1.2, "no unit widens what examples show"
    assert np.isnan(mean_over_examples("loss_after", np.ones(8)).high)
    embeddings = np.random.default_rng(0).normal(size=(30, 4))
    assert {kept.high for kept in embedding_fidelity(embeddings, embeddings).values()} == {1.0}


def test_a_mean_is_over_answers_and_its_interval_over_their_examples() -> None:
    values, lengths = np.array([1.0, 3, 5, 7, 2, 4]), np.array([2, 1, 3])
    others = [np.mean([5, 7, 2, 4]), np.mean([1, 3, 7, 2, 4]), np.mean([1, 3, 5])]
    expected = over_examples(22 / 6, 22 / 6 - np.array(others), math.nan)
    assert mean_over_examples("score_after", values, lengths) == expected
    assert mean_over_examples("score_after", values) != expected
    assert math.isnan(mean_over_examples("score_after", np.array([1.0])).low)
