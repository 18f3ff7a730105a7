"""How much embeddings agree, against cases by hand and scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from papa.scores.embeddings import embedding_fidelity
from papa.scores.intervals import example_unit, over_examples


def drawn(seed: int, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    before = draw.standard_normal((rows, 4))
    return before, before + noise * draw.standard_normal((rows, 4))


def angles(*degrees: float) -> np.ndarray:
    return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)


def test_four_sentences_by_hand() -> None:
    measures = embedding_fidelity(3 * angles(0, 10, 40, 60), angles(0, 10, 40, 60 + 90))
    assert measures["cosine"].mean == pytest.approx(3 / 4)
    # The third one's is the fourth before and the second after.
    assert measures["nearest_1"].mean == 3 / 4
    before = [10, 40, 60, 30, 50, 20]
    after = [10, 40, 150, 30, 140, 110]
    assert measures["similarities"].mean == pytest.approx(spearmanr(before, after)[0])
    assert "nearest_10" not in measures


def test_fidelity_ignores_rotation_with_scale() -> None:
    before = drawn(0, 60, 0.5)[0]
    unrelated = drawn(1, 60, 0.5)[0]
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    measures = embedding_fidelity(before, 7 * before @ turn)
    for name in ("similarities", "nearest_1", "nearest_10"):
        assert measures[name].mean == pytest.approx(1), name
    assert measures["cosine"].mean < 0.5
    chance = embedding_fidelity(before, unrelated)
    assert chance["nearest_10"].low < 10 / 59 < chance["nearest_10"].high
    assert abs(chance["similarities"].mean) < 0.1


def test_without_a_sentence_all_of_its_pairs_are_left_out() -> None:
    before, after = drawn(3, 24, 0.6)
    before[5] = before[4]  # Two sentences that are the same.
    measures = embedding_fidelity(before, after)
    without_each = [
        embedding_fidelity(*(np.delete(embeddings, row, axis=0) for embeddings in (before, after)))
        for row in range(24)
    ]
    for name, measure in measures.items():
        without = np.array([measures_without[name].mean for measures_without in without_each])
        expected = over_examples(measure.mean, measure.mean - without, example_unit(name))
        assert (measure.low, measure.high) == pytest.approx((expected.low, expected.high)), name


def test_intervals_stay_within_what_a_measure_can_be() -> None:
    embeddings = np.random.default_rng(0).normal(size=(30, 4))
    same = embedding_fidelity(embeddings, embeddings)
    # Cosines come out equal but for rounding.
    assert not same.pop("cosine").high > 1
    assert {measure.high for measure in same.values()} == {1.0}
