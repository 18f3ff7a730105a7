"""The search for the largest number of heads within a limit, on losses whose truth is known."""

import numpy as np
import pytest

from papa.ranking.loss_scores import ExampleValues
from papa.ranking.search import LossOfFirstHeads, Trial, search_head_count

HEADS = 30
TEXTS = 256
LIMIT = 0.1
GENERATOR = np.random.default_rng(0)
NOISE = GENERATOR.normal(0, 1, (HEADS + 1, TEXTS))


def search(loss: LossOfFirstHeads, seed: int = 0) -> list[Trial]:
    return search_head_count(loss, loss(0, np.arange(TEXTS)), HEADS, LIMIT, seed)


def values(sums: np.ndarray) -> ExampleValues:
    return ExampleValues(sums, np.ones(len(sums), dtype=np.int64))


def losses(effect_of_a_head: float, noise: float = 0.005) -> LossOfFirstHeads:
    """Losses of texts to which each head adds as much, with noise."""

    def loss(number: int, rows: np.ndarray) -> ExampleValues:
        return values(1 + effect_of_a_head * number + noise * NOISE[number, rows])

    return loss


def largest(trials: list[Trial]) -> int:
    return max((trial.head_count for trial in trials if trial.verdict == "within"), default=0)


@pytest.mark.parametrize(
    ("effect_of_a_head", "number"), [(0.0075, 13), (0.002, HEADS), (0.06, 1), (0.2, 0)]
)
def test_the_number_is_that_of_trying_all(effect_of_a_head: float, number: int) -> None:
    assert largest(search(losses(effect_of_a_head))) == number


def test_a_clear_number_takes_few_texts() -> None:
    trials = search(losses(0.0075))
    assert trials[0].head_count == 15
    assert trials[0].texts == TEXTS // 8
    assert sum(trial.texts for trial in trials) < HEADS * TEXTS / 5


def test_noise_leaves_a_number_undecided() -> None:
    (first, *_) = search(losses(0.0062, noise=2.0))
    assert first.verdict == "undecided"
    assert first.texts == TEXTS
    assert first.low < LIMIT < first.high


def test_losses_that_do_not_change_decide_nothing() -> None:
    trials = search(losses(0.0, noise=0.0))
    assert {trial.verdict for trial in trials} == {"undecided"}
    assert trials[-1].head_count == HEADS, "more heads were tried"


def test_equal_changes_decide_nothing() -> None:
    """Not 0 but equal in all texts, up to rounding."""

    def loss(number: int, rows: np.ndarray) -> ExampleValues:
        return values(np.full(len(rows), 0.78 if number else 0.7))

    trials = search(loss)
    assert {trial.verdict for trial in trials} == {"undecided"}


def test_a_number_beyond_the_limit_is_rarely_let_go() -> None:
    """Every number costs a little more than the limit."""
    errors = 0
    for seed in range(200):
        added = 1.02 * LIMIT * np.random.default_rng(seed).exponential(size=TEXTS)

        def loss(number: int, rows: np.ndarray, added: np.ndarray = added) -> ExampleValues:
            return values(added[rows] if number else np.zeros(len(rows)))

        errors += largest(search(loss, seed)) > 0
    assert errors <= 200 * 0.05


@pytest.mark.parametrize("heads", [1, HEADS])
def test_all_numbers_and_looks_of_a_search_share_its_error(heads: int) -> None:
    """Every number costs a little more than the limit, with noise of its own."""
    searches = 200
    errors = 0
    for seed in range(searches):
        noise = np.random.default_rng(seed).normal(size=(heads + 1, TEXTS))
        added = np.where(np.arange(heads + 1)[:, None] > 0, 1.001 * LIMIT + noise, 0)

        def loss(number: int, rows: np.ndarray, added: np.ndarray = added) -> ExampleValues:
            return values(added[number, rows])

        errors += largest(search_head_count(loss, values(added[0]), heads, LIMIT, seed)) > 0
    assert errors <= searches * 0.05
