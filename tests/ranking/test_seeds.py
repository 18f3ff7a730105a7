"""What several seeds tell of λ and of the head order that it gives, what an epoch changed in it,
and how alike two orders are.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from papa.ranking.head_scores import TrainedLambda
from papa.reporting.answers import certainty
from papa.scores.intervals import interval

LAYERS = 6
HEADS = 12
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
STUDIES = 400


def trained(values: np.ndarray) -> TrainedLambda:
    return TrainedLambda(
        {seed: seed_values.reshape(1, LAYERS, HEADS) for seed, seed_values in enumerate(values)}
    )


def sentence(lambdas: TrainedLambda) -> str:
    return certainty(lambdas.facts(FRACTIONS))


def agreement(values: np.ndarray) -> dict[str, Any]:
    return trained(values).facts(FRACTIONS)


def test_a_head_has_the_mean_and_the_interval_of_its_seeds() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.01, (3, LAYERS * HEADS)).astype(np.float32)
    lambdas = trained(values)
    low, high = lambdas.interval
    for number, (layer, head) in enumerate(np.ndindex(LAYERS, HEADS)):
        expected = interval([float(seed_value) for seed_value in values[:, number]])
        assert lambdas.mean[layer, head] == pytest.approx(expected.mean)
        assert (low[layer, head], high[layer, head]) == pytest.approx((expected.low, expected.high))
        assert lambdas.differs_from_start[layer, head] == (not expected.low <= 0.5 <= expected.high)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.random.default_rng(0).random((1, LAYERS * HEADS)), "one seed"),
        (np.full((3, LAYERS * HEADS), 0.5), "every seed"),
    ],
)
def test_where_seeds_cannot_differ_nothing_is_known(values: np.ndarray, expected: str) -> None:
    lambdas = trained(values)
    assert np.array_equal(lambdas.mean.ravel(), values[0])
    assert not lambdas.differs_from_start.any()
    assert lambdas.facts(FRACTIONS) == {"seeds": len(values), "heads": 72}
    assert expected in sentence(lambdas)


def test_agreement_is_the_mean_over_pairs_of_seeds() -> None:
    values = np.random.default_rng(2).random((4, LAYERS * HEADS))
    measured = agreement(values)
    pairs = list(combinations(values, 2))
    assert measured["kendall_tau"] == pytest.approx(
        np.mean([kendalltau(*pair).statistic for pair in pairs])
    )
    for fraction, count in ((0.5, 36), (0.125, 63), (0.0625, 68)):
        common = [len({*a.argsort()[:count]} & {*b.argsort()[:count]}) / count for a, b in pairs]
        (shared,) = (overlap for overlap in measured["shared"] if overlap["fraction"] == fraction)
        assert shared["share"] == pytest.approx(np.mean(common))
        assert shared["by_chance"] == count / 72
    assert len(measured["shared"]) == 3


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_random_orders_are_told_from_chance_in_five_percent_of_studies(seeds: int) -> None:
    numbers = np.random.default_rng(seeds)
    agreements = [agreement(numbers.random((seeds, LAYERS * HEADS))) for _ in range(STUDIES)]
    significant = sum(
        measured["told"] or any(overlap["told"] for overlap in measured["shared"])
        for measured in agreements
    )
    # Of 400 studies, 20 are expected and beyond 33 there are none in a thousand times.
    assert 5 <= significant <= 33
    beyond = np.mean(
        [measured["kendall_tau"] > measured["tau_by_chance"] for measured in agreements]
    )
    assert beyond == pytest.approx(0.05, abs=0.035)


def with_control(values: np.ndarray, shuffled: np.ndarray, *, distinct_rows: bool = True) -> str:
    by_epoch = trained(values).by_epoch
    control = trained(shuffled).by_epoch
    return sentence(TrainedLambda(by_epoch, distinct_rows, control))


def test_an_order_is_informative_only_where_labels_make_seeds_agree() -> None:
    """Text and rows alone move the same heads with every seed: that is reproducible, no more."""
    numbers = np.random.default_rng(5)
    of_text, of_labels = 0.001 * numbers.standard_normal((2, LAYERS * HEADS))
    noise, other_noise = 0.001 * numbers.standard_normal((2, 5, LAYERS * HEADS))
    values = 0.5 + of_text + noise
    shuffled = 0.5 + of_text + other_noise

    text = with_control(values, shuffled)
    assert text.startswith("Over 5 seeds the head order by λ is reproducible: Kendall's τ is 0.")
    assert "of 72 heads differs significantly from .5 (by chance 4)" in text
    random = sentence(trained(0.5 + noise))
    assert random.startswith(
        "Over 5 seeds the head order by λ is not significantly reproducible: Kendall's τ is "
    )
    assert "with shuffled labels τ is 0." in text
    assert "not significantly less" in text
    assert "35 % of simulated studies of 5 seeds" in text, "the power of the test"
    labelled = with_control(values + 2 * of_labels, shuffled)
    assert labelled.endswith("so the order is informative.")
    assert "informative" not in with_control(shuffled, values + 2 * of_labels)

    shared = with_control(values + 2 * of_labels, shuffled, distinct_rows=False)
    assert "is reproducible" in shared
    assert "Seeds share their rows" in shared
    few = with_control(values[:4] + 2 * of_labels, shuffled[:4])
    missing = sentence(TrainedLambda(trained(values + 2 * of_labels).by_epoch, distinct_rows=True))
    for unknown in (few, missing):
        assert "train λ on shuffled labels" in unknown
    assert not any("informative" in sentence for sentence in (shared, few, missing))
