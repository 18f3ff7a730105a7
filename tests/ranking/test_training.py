"""λ training on real text with trained weights."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from papa.cores import WorkerCores
from papa.models.encoder import Encoder
from papa.probes import chunks
from papa.probes.chunks import Chunk, ChunkLoss
from papa.ranking.head_scores import rows_of_seed
from papa.ranking.learned import train_lambda
from papa.ranking.loss_scores import ScoringRequest

Learn = Callable[..., Tensor]


@pytest.fixture
def learn(scoring_request: ScoringRequest) -> Learn:
    """Train on the text; all steps are told at the end, whether they were taken or not."""

    probe = scoring_request.task.probe.model_copy(update={"epochs": 1})

    def learned(rows: int, seed: int = 0) -> Tensor:
        progress_calls: list[tuple[int, int]] = []
        lambdas = train_lambda(
            scoring_request.encoder,
            scoring_request.constants,
            scoring_request.corpus,
            scoring_request.task.model_copy(update={"probe": probe}),
            rows=rows,
            seed=seed,
            progress=lambda *both: progress_calls.append(both),
        )
        assert progress_calls[-1] == (rows, rows)
        return lambdas

    return learned


def test_lambda_follows_from_its_seed(
    learn: Learn, scoring_request: ScoringRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scoring_request.encoder.model
    rows = list[int]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole = chunks.accumulate_gradients
    earlier = set[int]()
    lambdas = list[Tensor]()

    def recorded(
        losses: Sequence[ChunkLoss], chunks: Sequence[Chunk], parameters: Sequence[nn.Parameter]
    ) -> Tensor:
        rows.extend(row for chunk in chunks for row in chunk.rows.tolist())
        return whole(losses, chunks, parameters)

    monkeypatch.setattr(chunks, "accumulate_gradients", recorded)
    for seed in (0, 1, 2, 0):
        rows.clear()
        lambdas.append(learn(16, seed=seed))
        assert sorted(rows) == sorted(rows_of_seed(96, 16, seed).tolist())
        assert len(lambdas) == 4 or earlier.isdisjoint(rows), "seeds share no rows"
        earlier |= {*rows}
    assert lambdas[0].shape == (scoring_request.encoder.layers, 12)
    assert float((lambdas[0] - 0.5).abs().mean()) > 1e-5
    assert torch.equal(lambdas[0], lambdas[3])
    assert not torch.equal(lambdas[0], lambdas[1])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_lambda_is_the_same_on_two_cores(
    learn: Learn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins: list[Encoder] = []
    twin = Encoder.twin
    monkeypatch.setattr(Encoder, "twin", lambda self: twins.append(twin(self)) or twins[-1])
    monkeypatch.setattr(chunks, "chunk_tokens", lambda device: 64)
    in_parts = learn(32)
    assert not twins
    with WorkerCores(tmp_path, 0, 2).used():
        assert torch.equal(learn(32), in_parts)
    assert len(twins) == 1, "the unused core was used"
    assert not torch.equal(learn(32, seed=1), in_parts), "negative control"
