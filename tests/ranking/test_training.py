"""λ training on real text with trained weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from papa.probes import training
from papa.probes.training import Part, PartLoss
from papa.ranking.learned import train_lambda
from papa.ranking.seeds import rows_of_seed
from papa.ranking.sets import Asked
from papa.spec import RankingSpec

Learn = Callable[..., Tensor]


@pytest.fixture
def learn(asked: Asked) -> Learn:
    """Train on the text; all steps are told at the end, whether they were taken or not."""

    def learned(ranking: RankingSpec, total: int, **how: object) -> Tensor:
        told: list[tuple[int, int]] = []
        given = asked.encoder, asked.constants, asked.corpus, asked.task, ranking
        found = train_lambda(*given, progress=lambda *both: told.append(both), **how)  # type: ignore[arg-type]
        assert told[-1] == (total, total)
        return found

    return learned


def test_lambda_is_trained_on_a_sample_drawn_by_its_seed_and_repeats(
    learn: Learn, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = asked.encoder.model, list[int]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole, found, lambdas = training.total_loss, set[int](), list[Tensor]()

    def recorded(loss: PartLoss, parts: Sequence[Part], device: torch.device) -> Tensor:
        seen.extend(row for part in parts for row in part.rows.tolist())
        return whole(loss, parts, device)

    monkeypatch.setattr(training, "total_loss", recorded)
    for seed in (0, 1, 2, 0):
        seen.clear()
        lambdas.append(learn(RankingSpec(epochs=1, rows=16), 16, seed=seed))
        assert sorted(seen) == sorted(rows_of_seed(96, 16, seed).tolist())
        assert len(lambdas) == 4 or found.isdisjoint(seen), "seeds have rows of their own"
        found |= {*seen}
    assert lambdas[0].shape == (1, asked.encoder.layers, 12)
    assert float((lambdas[0] - 0.5).abs().mean()) > 1e-5
    assert torch.equal(lambdas[0], lambdas[3])
    assert not torch.equal(lambdas[0], lambdas[1])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.unchecked
def test_lambda_is_trained_for_the_tasks_own_epochs(learn: Learn) -> None:
    every = learn(RankingSpec(rows=32), 128)
    assert len(every) == 4
    assert torch.equal(learn(RankingSpec(rows=32, epochs=1, learning_rate=5e-4), 32), every[:1])
