"""λ that keeps hidden states: its gradient by finite differences, a planted head, and no labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from papa.attention.replacement import mixed_by
from papa.corpora.batches import micro_batch
from papa.probes.minibatches import parts_of
from papa.ranking.scores.asked import Asked
from papa.ranking.scores.gradient import gradient
from papa.ranking.scores.self_lambda import PENALTY, SelfGradients, self_lambda
from papa.spec import RankingSpec
from tests.ranking.planted import Planted, asked_of, silenced


@pytest.fixture
def asked(one_head: Planted, tmp_path: Path) -> Asked:
    return asked_of(one_head, tmp_path)


def test_its_loss_is_what_last_hidden_states_lose(asked: Asked) -> None:
    """By hand at θ = 0, where heads put out the middle of A·V and C·V, in one part and in two."""
    gradients, split = SelfGradients(asked), asked.corpus.split("train")
    rows = np.arange(16)
    (part,) = parts_of(split, rows, 10_000, (0,))
    ((loss, found),) = gradients.of_parts([part])
    batch = micro_batch(split, part.rows)

    def lost(theta: torch.Tensor) -> float:
        own = asked.encoder.token_states(batch)[-1]
        with mixed_by(asked.encoder, asked.constants, theta.sigmoid()):
            error = asked.encoder.token_states(batch)[-1] - own
        lost = ((error**2).sum(-1) / (own**2).sum(-1)).mean()
        return float(lost + PENALTY * theta.sigmoid().mean())

    with torch.no_grad():
        assert loss == pytest.approx(lost(torch.zeros_like(gradients.theta)), rel=1e-5)
        for head in np.ndindex(*gradients.theta.shape):
            moved = torch.zeros_like(gradients.theta)
            moved[head] = 0.02
            slope = (lost(moved) - lost(-moved)) / 0.04
            assert float(found[0][head]) == pytest.approx(slope, abs=2e-5)
    assert float(found[0].abs().max()) > 1e-3

    # The same in smaller parts, as another device takes them.
    parts = parts_of(split, rows, 40, (0,))
    assert len(parts) > 1
    in_parts = gradients.of_parts(parts)
    assert sum(part_loss for part_loss, _ in in_parts) == pytest.approx(loss, rel=1e-5)
    total = sum(tensors[0] for _, tensors in in_parts)
    torch.testing.assert_close(total, found[0], rtol=1e-4, atol=1e-7)


@pytest.mark.unchecked
def test_the_head_that_moves_states_most_keeps_most(asked: Asked, one_head: Planted) -> None:
    told: list[tuple[int, int]] = []
    found = self_lambda(replace(asked, progress=lambda *both: told.append(both)))
    assert told[-1] == (6 * 192, 6 * 192)
    assert np.unravel_index(found.values.argmax(), found.values.shape) == one_head.head
    np.testing.assert_array_equal(self_lambda(asked).values, found.values)
    with silenced(one_head):
        without = self_lambda(asked).values
    assert without[one_head.head] < found.values[one_head.head] - 0.05


def test_no_label_is_read(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(type(asked.corpus.split("train")), "labels_of", refuse)
    self_lambda(replace(asked, ranking=RankingSpec(rows=16, epochs=1)))
    with pytest.raises(AssertionError):
        gradient(asked)
