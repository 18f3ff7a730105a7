"""What several seeds say of λ and its head order, and how alike two orders are."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import kendalltau

from papa.ranking.head_scores import TrainedLambda
from papa.reporting.sentences import certainty_sentences
from papa.scores.intervals import interval_over_seeds

LAYERS = 6
HEADS = 12
FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
STUDIES = 400


def trained(values: np.ndarray) -> TrainedLambda:
    return TrainedLambda(
        {seed: seed_values.reshape(LAYERS, HEADS) for seed, seed_values in enumerate(values)}
    )


def sentence(lambdas: TrainedLambda) -> str:
    return certainty_sentences(lambdas.agreement(FRACTIONS))


def test_a_head_has_the_interval_of_its_seeds() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.01, (3, LAYERS * HEADS)).astype(np.float32)
    lambdas = trained(values)
    low, high = lambdas.interval
    for number, (layer, head) in enumerate(np.ndindex(LAYERS, HEADS)):
        expected = interval_over_seeds([float(seed_value) for seed_value in values[:, number]])
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
    assert lambdas.agreement(FRACTIONS) == {"seeds": len(values), "heads": 72}
    assert expected in sentence(lambdas)


def test_agreement_is_the_mean_over_pairs_of_seeds() -> None:
    values = np.random.default_rng(2).random((4, LAYERS * HEADS))
    facts = trained(values).agreement(FRACTIONS)
    pairs = list(combinations(values, 2))
    tau = np.mean([kendalltau(*pair).statistic for pair in pairs])
    assert facts["kendall_tau"] == pytest.approx(tau)
    for fraction, count in ((0.5, 36), (0.125, 63), (0.0625, 68)):
        common = [len({*a.argsort()[:count]} & {*b.argsort()[:count]}) / count for a, b in pairs]
        (shared,) = (overlap for overlap in facts["shared"] if overlap["fraction"] == fraction)
        assert shared["share"] == pytest.approx(np.mean(common))
        assert shared["by_chance"] == count / 72
    assert len(facts["shared"]) == 3


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_random_orders_are_told_from_chance_in_five_percent_of_studies(seeds: int) -> None:
    numbers = np.random.default_rng(seeds)
    drawn = (trained(numbers.random((seeds, LAYERS * HEADS))) for _ in range(STUDIES))
    agreements = [lambdas.agreement(FRACTIONS) for lambdas in drawn]
    significant = sum(
        facts["is_significant"] or any(overlap["is_significant"] for overlap in facts["shared"])
        for facts in agreements
    )
    # Of 400 studies, 20 are expected and beyond 33 there are none in a thousand times.
    assert 5 <= significant <= 33
    beyond = np.mean([facts["kendall_tau"] > facts["tau_by_chance"] for facts in agreements])
    assert beyond == pytest.approx(0.05, abs=0.035)


NUMBERS = np.random.default_rng(5)
TEXT = 0.001 * NUMBERS.standard_normal(LAYERS * HEADS)
LABELS = 0.002 * NUMBERS.standard_normal(LAYERS * HEADS)
NOISE = 0.5 + 0.001 * NUMBERS.standard_normal((5, LAYERS * HEADS))
CONTROL = 0.5 + TEXT + 0.001 * NUMBERS.standard_normal((5, LAYERS * HEADS))
"""λ on shuffled labels: text and rows alone move the same heads with every seed."""


@pytest.mark.parametrize(
    ("values", "control", "distinct_rows", "is_informative"),
    [
        (NOISE + TEXT + LABELS, CONTROL, True, True),
        (NOISE + TEXT, CONTROL, True, False),
        (CONTROL, NOISE + TEXT + LABELS, True, False),
        ((NOISE + TEXT + LABELS)[:4], CONTROL[:4], True, False),
        (NOISE + TEXT + LABELS, CONTROL, False, False),
        (NOISE + TEXT + LABELS, None, True, False),
    ],
    ids=["labels", "text alone", "more in the control", "four seeds", "shared rows", "no control"],
)
def test_an_order_is_informative_only_where_labels_make_seeds_agree(
    values: np.ndarray, control: np.ndarray | None, distinct_rows: bool, is_informative: bool
) -> None:
    lambdas = trained(values).lambdas
    shuffled = {} if control is None else trained(control).lambdas
    text = sentence(TrainedLambda(lambdas, distinct_rows, shuffled))
    assert ("informative" in text) == is_informative


def test_seeds_of_noise_do_not_agree() -> None:
    assert "do not agree significantly" in sentence(trained(NOISE))
