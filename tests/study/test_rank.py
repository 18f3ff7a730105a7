"""λ in several calls: the bits of one call, also after the training was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from papa.encoders.reference import resolve_encoder
from papa.progress import ignore_progress
from papa.ranking.learned import Halfway
from papa.spec import EncoderSpec, RankingSpec
from papa.storage.artifacts import read_metadata, remove
from papa.study.constants import Controls
from papa.study.rank import CALL_FLOPS, LAMBDA, Rank
from papa.study.store import Store
from tests.study.minilm import here, reviews, with_inputs

pytestmark = pytest.mark.unchecked
RANKING = RankingSpec(epochs=2, learning_rate=0.1)


def rank_step(folder: str) -> Rank:
    encoder = resolve_encoder(EncoderSpec(name=folder))
    corpus = reviews(slots=32, train_rows=32, probe={"batch_size": 16})
    corpus = replace(corpus, encoder=encoder)
    constants = Controls("constants", 0.0, encoder, "toeplitz", 32)
    return Rank("rank", 0.0, encoder, corpus, constants, corpus.task, RANKING, 0)


def in_calls(step: Rank, store: Store, epochs: int = 1) -> Rank:
    """The step with so much work an epoch that a call has so many epochs; its inputs are there."""
    longer = replace(step, flops=CALL_FLOPS * step.epochs / epochs)
    assert longer.epochs_a_call() == epochs
    remove(longer.folder(store))
    return longer


def lambdas_of(step: Rank, store: Store) -> torch.Tensor:
    return load_file(Path(step.folder(store)) / LAMBDA)["lambda_by_epoch"]


@pytest.mark.parametrize("until_stable", [False, True])
def test_training_in_calls_gives_the_bits_of_one_call(
    shallow: str, tmp_path: Path, until_stable: bool
) -> None:
    step = replace(
        rank_step(shallow),
        ranking=RANKING.model_copy(update={"epochs": 3, "until_stable": until_stable}),
        sets=(("lambda", 24),),
    )
    store = with_inputs(step, tmp_path / "store")
    step.run(here(store), ignore_progress)
    alone, whole = lambdas_of(step, store), read_metadata(step.folder(store))
    assert len(alone) == (2 if until_stable else 3)
    told: list[float] = []
    # After two epochs a call the third has one of its own.
    for epochs in (1, 2):
        calls = in_calls(step, store, epochs)
        told.clear()
        calls.run(here(store), lambda done, total: told.append(done / total))
        assert torch.equal(lambdas_of(calls, store), alone)
        assert told == sorted(told if until_stable else set(told))
        assert not list(Path(store.artifacts, "rank-epochs").glob("*"))
        seconds = read_metadata(calls.folder(store))["worker_seconds"]
        assert seconds > whole["worker_seconds"] / 3


def test_a_training_that_was_killed_goes_on_from_its_last_call(
    shallow: str, tmp_path: Path
) -> None:
    step = rank_step(shallow)
    store = with_inputs(step, tmp_path / "store")
    step.run(here(store), ignore_progress)
    alone, calls = lambdas_of(step, store), in_calls(step, store)

    def first_call() -> Path:
        session = here(store)
        remove(calls.folder(store))
        calls.run_on_worker(session, ignore_progress)
        assert not calls.is_complete(store)
        return Path(calls.after(1, store))

    def finished() -> tuple[int, torch.Tensor]:
        heard: list[int] = []
        session = here(store)
        session.on_epoch = lambda _, epoch, losses: heard.append(epoch)
        calls.run(session, ignore_progress)
        return heard[0], lambdas_of(calls, store)

    first_call()
    epoch, found = finished()
    assert (epoch, torch.equal(found, alone)) == (2, True)
    # What training left there decides: without AdamW's moments λ would go elsewhere.
    folder = first_call()
    halfway = Halfway.load(folder)
    halfway.moments = [(mean * 0, square) for mean, square in halfway.moments]
    remove(str(folder))
    calls._leave(halfway, [], store)
    epoch, found = finished()
    assert (epoch, torch.equal(found, alone)) == (2, False)
    # A damaged rest is trained again.
    file = next(first_call().glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-8] + b"12345678")
    epoch, found = finished()
    assert (epoch, torch.equal(found, alone)) == (1, True)


def test_small_minibatches_leave_other_workers_alone(shallow: str, tmp_path: Path) -> None:
    step = rank_step(shallow)
    task = step.task
    store = with_inputs(step, tmp_path / "store")

    def helpers(batch_size: int, on_gpu: bool = False) -> int:
        probe = task.probe.model_copy(update={"batch_size": batch_size})
        return replace(step, task=task.model_copy(update={"probe": probe})).helpers(store, on_gpu)

    assert helpers(4) == helpers(32, on_gpu=True) == 0
    # As many as have a part to do: on a cluster the others are left to other steps.
    assert 0 < helpers(32) < helpers(128) < 64
