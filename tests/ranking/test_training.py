"""λ training on real text with trained weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from papa.cores import WorkerCores
from papa.models.encoder import Encoder
from papa.probes import training
from papa.probes.training import Chunk, ChunkLoss
from papa.ranking.head_scores import rows_of_seed
from papa.ranking.learned import train_lambda
from papa.ranking.loss_scores import ScoringRequest
from papa.spec import RankingSpec

Learn = Callable[..., Tensor]


@pytest.fixture
def learn(asked: ScoringRequest) -> Learn:
    """Train on the text; all steps are told at the end, whether they were taken or not."""

    def learned(ranking: RankingSpec, total: int, **how: object) -> Tensor:
        told: list[tuple[int, int]] = []
        given = asked.encoder, asked.constants, asked.corpus, asked.task, ranking
        found = train_lambda(*given, progress=lambda *both: told.append(both), **how)  # type: ignore[arg-type]
        assert told[-1] == (total, total)
        return found

    return learned


def test_lambda_is_trained_on_a_sample_drawn_by_its_seed_and_repeats(
    learn: Learn, asked: ScoringRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = asked.encoder.model, list[int]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole, found, lambdas = training.total_loss, set[int](), list[Tensor]()

    def recorded(
        losses: Sequence[ChunkLoss], parts: Sequence[Chunk], parameters: Sequence[nn.Parameter]
    ) -> Tensor:
        seen.extend(row for part in parts for row in part.rows.tolist())
        return whole(losses, parts, parameters)

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


def test_lambda_is_the_same_where_it_is_trained_on_two_cores(
    learn: Learn, asked: ScoringRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = RankingSpec(epochs=1, rows=32)
    twins: list[Encoder] = []
    twin = Encoder.twin
    monkeypatch.setattr(Encoder, "twin", lambda self: twins.append(twin(self)) or twins[-1])
    monkeypatch.setattr(training, "chunk_tokens", lambda device: 64)
    in_parts = learn(ranking, 32)
    assert not twins
    with WorkerCores(tmp_path, 0, 2).used():
        assert torch.equal(learn(ranking, 32), in_parts)
    assert len(twins) == 1, "the unused core was used"
    assert not torch.equal(learn(ranking, 32, seed=1), in_parts), "negative control"


@pytest.mark.unchecked
def test_lambda_is_trained_for_the_tasks_own_epochs(learn: Learn) -> None:
    every = learn(RankingSpec(rows=32), 128)
    assert len(every) == 4
    assert torch.equal(learn(RankingSpec(rows=32, epochs=1, learning_rate=5e-4), 32), every[:1])
