"""What sets of heads are worth, on planted heads, by hand, and against captum."""

from collections.abc import Sequence, Set
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from captum.attr import ShapleyValues, ShapleyValueSampling
from torch import Tensor, ones

from papa.heads.replacement import replaced
from papa.native.passes import NativeHead
from papa.probes.packed_features import live_features
from papa.ranking.head_scores import HeadScores
from papa.ranking.loss_scores import gradient
from papa.ranking.orders import SCORING_METHODS
from papa.ranking.set_values import LossValue, Value, effect, greedy_positions, shapley_values
from papa.spec import RankingSpec
from papa.spec.orders import Head
from papa.text.batches import micro_batch
from tests.ranking.planted import Planted

HEADS: list[Head] = [(layer, head) for layer in range(2) for head in range(3)]
DRAWS = 40


def drawn_game(degree: int, seed: int = 0) -> Value:
    """Every coalition of up to ``degree`` heads adds a number drawn at random."""
    drawn = np.random.default_rng(seed)
    weights = {
        frozenset(chosen): drawn.normal()
        for size in range(1, degree + 1)
        for chosen in combinations(HEADS, size)
    }
    return lambda heads: sum(number for chosen, number in weights.items() if chosen <= heads)


def counted(value: Value) -> tuple[Value, list[Set[Head]]]:
    evaluated: list[Set[Head]] = []

    def count(heads: Set[Head]) -> float:
        evaluated.append(heads)
        return value(heads)

    return count, evaluated


def test_an_order_ends_where_nothing_is_left_to_lose() -> None:
    """Only the first head is worth anything: what comes after it in an order is not asked."""

    def useless(tolerance: float) -> int:
        value, evaluated = counted(lambda heads: 1.0 * (HEADS[0] in heads))
        values, errors, _ = shapley_values(value, HEADS, 402, seed=0, tolerance=tolerance)
        assert values.tolist() == [1, 0, 0, 0, 0, 0]
        assert errors.max() == 0
        assert len(evaluated) <= 402
        return sum(HEADS[0] not in heads and len(heads) < 5 for heads in evaluated[2:])

    assert useless(0.01) < useless(0) / 2


@pytest.mark.parametrize(
    ("method", "requested", "heads", "expected"),
    [
        ("shapley", None, 144, 2_000),
        ("shapley", None, 1_024, 4_094),
        ("greedy", None, 4_096, 4_096),
        ("shapley", 600, 144, 600),
        ("effect", None, 1_024, 0),
    ],
)
def test_evaluations_are_as_requested_or_as_many_as_heads_need(
    method: str, requested: int | None, heads: int, expected: int
) -> None:
    ranking = RankingSpec(evaluations=requested)
    assert SCORING_METHODS[method].evaluations(ranking, heads) == expected


@pytest.mark.parametrize("budget", [22, 41, 42, 100])
def test_shapley_values_spend_their_budget(budget: int) -> None:
    progress_calls: list[tuple[int, int]] = []

    def record(done: int, total: int) -> None:
        progress_calls.append((done, total))

    value, evaluated = counted(drawn_game(6))
    shapley_values(value, HEADS, budget, seed=0, tolerance=0, progress=record)
    assert budget - 10 < len(evaluated) <= budget
    assert progress_calls[-1] == (budget, budget)


def test_the_shapley_value_of_a_single_head_is_that_of_the_game() -> None:
    values, *_ = shapley_values(lambda heads: float(len(heads)), HEADS[:1], 10, seed=0)
    assert values.tolist() == [1.0]


def spare_pair(heads: Set[Head]) -> float:
    """The first two heads do the same: either is enough; the third adds half of it."""
    return 1.0 * bool(heads & {HEADS[0], HEADS[1]}) + 0.5 * (HEADS[2] in heads)


def test_greedy_sees_that_a_spare_head_is_spare_no_more() -> None:
    """The first head is spare, then the second is not, and the third goes before it."""
    value, evaluated = counted(spare_pair)
    assert greedy_positions(value, HEADS[:3], 5).tolist() == [0, 2, 1]
    assert [len(heads) for heads in evaluated] == [2, 2, 2, 1, 1]
    assert {HEADS[0]} not in evaluated, "of two left, one becomes constant"
    # All at once: each costs what it costs alone.
    assert greedy_positions(spare_pair, HEADS[:3], 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("evaluations", [6, 8, 9, 12, 19, 20, 1000])
def test_greedy_keeps_its_budget(evaluations: int) -> None:
    value, evaluated = counted(drawn_game(6))
    calls: list[tuple[int, int]] = []
    positions = greedy_positions(value, HEADS, evaluations, lambda *both: calls.append(both))
    assert sorted(positions) == list(range(6))
    assert len(evaluated) <= evaluations
    assert calls == [(done, len(evaluated)) for done in range(1, len(evaluated) + 1)]
    # One at a time: 6 + 5 + 4 + 3 + 2. Two: 6 + 4 + 2. Three: 6 + 3. Four: 6 + 2. All at once: 6.
    expected = {6: 6, 8: 8, 9: 9, 12: 12, 19: 12, 20: 20, 1000: 20}
    assert len(evaluated) == expected[evaluations]


def captums(value: Value, orders: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Captum's Shapley values: over all orders of joining, or over these."""

    def forward(presence: Tensor) -> float:
        return value({head for head, present in zip(HEADS, presence[0], strict=True) if present})

    if orders is None:
        return ShapleyValues(forward).attribute(ones(1, len(HEADS)))[0].numpy()
    sampling = ShapleyValueSampling(forward)
    sampling.permutation_generator = lambda *_: orders
    return sampling.attribute(ones(1, len(HEADS)), n_samples=len(orders))[0].numpy()


def drawn_orders(seed: int) -> list[np.ndarray]:
    drawn = np.random.default_rng(seed)
    orders = [drawn.permutation(len(HEADS)) for _ in range(DRAWS)]
    return [walk for order in orders for walk in (order, order[::-1])]


@pytest.mark.parametrize("degree", [1, 2, 6])
def test_values_are_those_of_captum(degree: int) -> None:
    """In the same orders for any game; over all orders where pairs are exact, or within errors."""
    value = drawn_game(degree)
    budget = 2 + 2 * (len(HEADS) - 1) * DRAWS
    values, errors, _ = shapley_values(value, HEADS, budget, seed=0, tolerance=0)
    np.testing.assert_allclose(values, captums(value, drawn_orders(0)), atol=1e-5)
    assert values.sum() == pytest.approx(value({*HEADS}) - value(set()))
    assert (errors.max() < 1e-12) == (degree < 3)
    assert (np.abs(values - captums(value)) < 4 * errors + 1e-5).all()
    another = captums(drawn_game(degree, seed=1))
    assert np.abs(values - another).max() > 0.1, "another game"
    with_other_orders = captums(value, drawn_orders(1))
    assert (np.abs(values - with_other_orders).max() > 0.01) == (degree == 6), "other orders"


def test_the_interval_of_shapley_values_covers_what_it_says() -> None:
    """Of six games with eight draws each time, whose orders the seed draws."""
    covered = []
    for game in range(6):
        value = cache(drawn_game(6, seed=game))
        exact = captums(lambda heads, value=value: value(frozenset(heads)))
        for seed in range(60):
            budget = 2 + 2 * (len(HEADS) - 1) * 8
            values, errors, draws = shapley_values(value, HEADS, budget, seed, tolerance=0)
            assert draws == 8
            scores = HeadScores(values.reshape(1, 2, 3), errors.reshape(2, 3), samples=draws)
            low, high = (bound.ravel() for bound in scores.interval)
            covered.append((low <= exact) & (exact <= high))
    assert 0.92 < np.mean(covered) < 0.975


@torch.no_grad()
def losses(planted_model: Planted, constant: Sequence[Head] = ()) -> tuple[np.ndarray, np.ndarray]:
    scoring_request = planted_model.scoring_request
    split = scoring_request.corpus.split("train")
    loss_by_text = list[float]()
    counts = np.array([(split.labels_of([row]) >= 0).sum() for row in split.rows.tolist()])
    loss = planted_model.loss
    if isinstance(loss, NativeHead):
        answers = loss.all_answers(scoring_request.constants, constant)
        logits = torch.from_numpy(answers["logits"]).log_softmax(-1)
        truth = torch.from_numpy(split.labels[split.labels >= 0])[:, None]
        loss_by_text = [
            -float(text_losses.mean())
            for text_losses in logits.gather(1, truth)[:, 0].split(counts.tolist())
        ]
        return np.array(loss_by_text), counts
    with replaced(scoring_request.encoder, scoring_request.constants, constant):
        for row in split.rows.tolist():
            batch = micro_batch(split, [row])
            features = live_features(scoring_request.encoder.token_states(batch), split, batch)
            first = torch.zeros(1, 1, dtype=torch.int64)
            loss_by_text.append(float(loss.probe.losses(features, first)))
    return np.array(loss_by_text), counts


@pytest.mark.unchecked
def test_a_set_has_the_value_of_its_loss(answering: Planted) -> None:
    """Of all training rows, which a budget of 256 takes; rows have several labels."""
    value = LossValue(answering.request)
    head = answering.head
    everyone = frozenset(value.heads)
    head_values = dict[Head, float]()
    plain, counts = losses(answering)
    for constant in ([head], [(0, 0)], [(0, 0), (1, 2)], value.heads):
        expected = np.average(losses(answering, constant)[0], weights=counts)
        assert value(everyone - {*constant}) == pytest.approx(-expected, abs=1e-4)
        head_values[constant[0]] = expected - np.average(plain, weights=counts)
    assert value(everyone) == pytest.approx(-np.average(plain, weights=counts), rel=0.01)
    assert value.evaluations == 5
    scored = effect(answering.request)
    assert scored.evaluations == 7
    assert scored.mean[head] == pytest.approx(head_values[head], abs=2e-4)
    assert np.unravel_index(scored.mean.argmax(), scored.mean.shape) == head
    assert np.sort(scored.mean.flatten())[-2] < 0.05 < 0.3 < scored.mean.max()


@pytest.mark.unchecked
def test_gradients_are_finite_differences(answering: Planted) -> None:
    gradients = gradient(answering.request)
    step = 0.02
    assert gradients.standard_error is not None
    for head in (answering.head, (0, 2)):
        sides = []
        for sign in (1, -1):
            with answering.scaled(head, 1 + sign * step):
                sides.append(losses(answering)[0])
        expected = np.abs(sides[0] - sides[1]) / (2 * step)
        assert gradients.mean[head] == pytest.approx(expected.mean(), rel=0.05, abs=1e-5)
        error = expected.std(ddof=1) / np.sqrt(len(expected))
        assert gradients.standard_error[head] == pytest.approx(error, rel=0.05, abs=1e-5)
    assert np.unravel_index(gradients.mean.argmax(), gradients.mean.shape) == answering.head
