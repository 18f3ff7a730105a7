"""Trained head scores, L0 gates and label-free λ: gradients by finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from papa.heads.replacement import mixed_by
from papa.probes.chunks import accumulate_gradients, chunks_of
from papa.ranking.learned import (
    GATE_COST,
    SELF_LAMBDA_PENALTY,
    build_gates,
    build_self_lambda,
    drawn_gates,
    open_probability,
    self_lambda,
)
from papa.ranking.loss_scores import ScoringRequest, gradient
from papa.spec import RankingSpec
from papa.text.batches import micro_batch
from tests.ranking.planted import Planted


@pytest.fixture
def scoring_request(one_head: Planted) -> ScoringRequest:
    return one_head.scoring_request


def test_gates_are_drawn_from_the_hard_concrete_distribution() -> None:
    """By hand: s = sigmoid((ln u - ln(1 - u) + log α) / .33), g = min(1, max(0, 1.2 s - .1))."""
    locations = [0.0, 1.0, -100.0, 100.0]
    location = torch.tensor([locations], dtype=torch.float64)
    uniform = torch.rand(1, 4, generator=torch.Generator().manual_seed(7))[0].tolist()
    drawn = [
        1 / (1 + math.exp(-(math.log(u) - math.log(1 - u) + a) / 0.33))
        for u, a in zip(uniform, locations, strict=True)
    ]
    expected = [min(1.0, max(0.0, 1.2 * s - 0.1)) for s in drawn]
    gates = drawn_gates(location, torch.Generator().manual_seed(7))[0].tolist()
    torch.testing.assert_close(gates, expected)
    assert 0 < gates[0] < 1, "negative control"
    assert gates[2:] == [0.0, 1.0]

    # 1 / (1 + e^-(log α + .33 ln 11)): the penalty, and the share of draws that are not 0.
    by_hand = [1 / (1 + math.exp(-(a + 0.33 * math.log(11)))) for a in (0.0, 1.0)]
    likely = location[:, :2]
    torch.testing.assert_close(open_probability(likely)[0].tolist(), by_hand)
    many = drawn_gates(likely.expand(100_000, 2), torch.Generator().manual_seed(0))
    shares = (many > 0).double().mean(0)
    torch.testing.assert_close(shares, open_probability(likely)[0], atol=0.005, rtol=0)


def test_gradients_of_gates_are_finite_differences(scoring_request: ScoringRequest) -> None:
    """Finite differences; of a head that carries nothing what remains is the cost."""
    gates_and_probe = build_gates(scoring_request)
    loss = gates_and_probe.loss_on(scoring_request.encoder)
    step = 1e-2
    location = gates_and_probe.theta
    (chunk,) = chunks_of(scoring_request.corpus.split("train"), np.arange(16), 10_000, (0,))
    (derivative,) = torch.autograd.grad(loss(chunk), location)
    with torch.no_grad():
        assert loss(chunk) == loss(chunk)
        assert loss(chunk._replace(dropout_seed=chunk.dropout_seed + 1)) != loss(chunk)
        for head in np.ndindex(*location.shape):
            losses = []
            for sign in (1, -1):
                location[head] = sign * step
                losses.append(float(loss(chunk)))
                location.zero_()
            slope = (losses[0] - losses[1]) / (2 * step)
            assert float(derivative[head]) == pytest.approx(slope, abs=2e-4)
    stays = float(open_probability(torch.zeros(1, 1)))
    assert float(derivative.median()) == pytest.approx(GATE_COST * stays * (1 - stays), abs=1e-3)


def test_gates_cost_the_same_in_any_number_of_chunks(scoring_request: ScoringRequest) -> None:
    """What remains of a head that carries nothing is the cost."""
    gates_and_probe = build_gates(scoring_request)
    loss = gates_and_probe.loss_on(scoring_request.encoder)
    location = gates_and_probe.theta
    costs: list[float] = []
    for tokens in (10_000, 40):
        chunks = chunks_of(scoring_request.corpus.split("train"), np.arange(16), tokens, (0,))
        location.grad = None
        accumulate_gradients([loss], chunks, [location])
        costs.append(float(location.grad.median()))
    assert len(chunks) > 1
    assert costs[1] == pytest.approx(costs[0], rel=1e-3)


def test_its_loss_is_what_last_hidden_states_lose(scoring_request: ScoringRequest) -> None:
    """By hand at θ = 0, where heads output the middle of A·V and C·V, in one part and in two."""
    trainable = build_self_lambda(scoring_request)
    theta = trainable.theta
    of_part = trainable.loss_on(scoring_request.encoder)
    rows = np.arange(16)
    split = scoring_request.corpus.split("train")
    (chunk,) = chunks_of(split, rows, 10_000, (0,))
    loss = float(accumulate_gradients([of_part], [chunk], [theta]))
    batch = micro_batch(split, chunk.rows)
    derivative, theta.grad = theta.grad, None

    def lost(theta: torch.Tensor) -> float:
        original_states = scoring_request.encoder.token_states(batch)[-1]
        with mixed_by(scoring_request.encoder, scoring_request.constants, theta.sigmoid()):
            error = scoring_request.encoder.token_states(batch)[-1] - original_states
        lost = ((error**2).sum(-1) / (original_states**2).sum(-1)).mean()
        return float(lost + SELF_LAMBDA_PENALTY * theta.sigmoid().mean())

    with torch.no_grad():
        assert loss == pytest.approx(lost(torch.zeros_like(theta)), rel=1e-5)
        for head in np.ndindex(*theta.shape):
            moved = torch.zeros_like(theta)
            moved[head] = 0.02
            slope = (lost(moved) - lost(-moved)) / 0.04
            assert float(derivative[head]) == pytest.approx(slope, abs=2e-5)
    assert float(derivative.abs().max()) > 1e-3

    # The same in smaller parts, as another device takes them.
    chunks = chunks_of(split, rows, 40, (0,))
    assert len(chunks) > 1
    assert float(accumulate_gradients([of_part], chunks, [theta])) == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(theta.grad, derivative, rtol=1e-4, atol=1e-7)


def test_no_label_is_read(one_head: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    scoring_request = one_head.scoring_request
    monkeypatch.setattr(type(scoring_request.corpus.split("train")), "labels_of", refuse)
    self_lambda(replace(scoring_request, ranking=RankingSpec(rows=16, epochs=1)))
    with pytest.raises(AssertionError):
        gradient(one_head.request)
