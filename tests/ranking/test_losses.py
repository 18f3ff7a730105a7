"""Scores by a loss, of a frozen probe and of a model's own head: against losses row by row on the
paths that score cells, and finite differences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from papa.heads.replacement import replaced
from papa.probes.features import live_features
from papa.ranking.sets import LossValue, effect, gradient
from papa.spec.orders import Head
from papa.text.batches import micro_batch
from tests.ranking.planted import Planted


@torch.no_grad()
def losses(given: Planted, constant: Sequence[Head] = ()) -> tuple[np.ndarray, np.ndarray]:
    """The mean loss of every training row, and its labels."""
    asked = given.asked
    split, found = asked.corpus.split("train"), list[float]()
    counts = np.array([(split.labels_of([row]) >= 0).sum() for row in split.rows.tolist()])
    if asked.own is not None:
        answers = asked.own.answers(split, asked.constants, constant)
        logits = torch.from_numpy(answers["logits"]).log_softmax(-1)
        truth = torch.from_numpy(split.labels[split.labels >= 0])[:, None]
        found = [-float(one.mean()) for one in logits.gather(1, truth)[:, 0].split(counts.tolist())]
        return np.array(found), counts
    assert asked.probe is not None
    with replaced(asked.encoder, asked.constants, constant):
        for row in split.rows.tolist():
            batch = micro_batch(split, [row])
            features = live_features(asked.encoder.token_states(batch), split, batch)
            found.append(float(asked.probe.losses(features, torch.zeros(1, 1, dtype=torch.int64))))
    return np.array(found), counts


@pytest.mark.unchecked
def test_a_set_is_worth_what_its_loss_says_and_a_head_what_it_gains(answering: Planted) -> None:
    """Of all training rows, which a budget of 256 takes; rows have several labels."""
    value, head = LossValue(answering.asked), answering.head
    everyone, worth = frozenset(value.heads), dict[Head, float]()
    plain, counts = losses(answering)
    for constant in ([head], [(0, 0)], [(0, 0), (1, 2)], value.heads):
        expected = np.average(losses(answering, constant)[0], weights=counts)
        assert value(everyone - {*constant}) == pytest.approx(-expected, abs=1e-4)
        worth[constant[0]] = expected - np.average(plain, weights=counts)
    assert value(everyone) == pytest.approx(-np.average(plain, weights=counts), rel=0.01)
    assert value.evaluations == 5
    scored = effect(answering.asked)
    assert scored.evaluations == 7
    assert scored.mean[head] == pytest.approx(worth[head], abs=2e-4)
    assert np.unravel_index(scored.mean.argmax(), scored.mean.shape) == head
    assert np.sort(scored.mean.flatten())[-2] < 0.05 < 0.3 < scored.mean.max()


def test_gradients_are_finite_differences(answering: Planted) -> None:
    found, step = gradient(answering.asked), 0.02
    assert found.standard_error is not None
    for head in (answering.head, (0, 2)):
        sides = []
        for sign in (1, -1):
            with answering.scaled(head, 1 + sign * step):
                sides.append(losses(answering)[0])
        expected = np.abs(sides[0] - sides[1]) / (2 * step)
        assert found.mean[head] == pytest.approx(expected.mean(), rel=0.05, abs=1e-5)
        error = expected.std(ddof=1) / np.sqrt(len(expected))
        assert found.standard_error[head] == pytest.approx(error, rel=0.05, abs=1e-5)
    assert np.unravel_index(found.mean.argmax(), found.mean.shape) == answering.head
