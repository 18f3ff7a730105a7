"""A study's steps in this process: each is made once, and again where it is damaged."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from papa.errors import DamagedError
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.spec.file import resolve_study
from papa.storage.artifacts import read_metadata, verified
from papa.storage.locks import active_runs
from papa.storage.store import Store
from papa.tasks.cell import read_examples, read_scores
from papa.tasks.context import Context
from papa.tasks.inputs import resolve_inputs
from papa.tasks.pipeline import build_pipeline
from papa.tasks.run import Session, run_here, run_once
from papa.tasks.step import Step, StepGroup, stage
from papa.worker import Worker
from tests.finished import Told, described
from tests.flows.conftest import artifacts
from tests.flows.processes import PATIENCE_SECONDS
from tests.tasks.steps import steps_of

DAMAGES: list[None] = []
"""How often what a step reads is damaged meanwhile."""
TASK = {"metric": "accuracy", "source": {"kind": "embedded"}, "base": "reviews"}
BEGUN = threading.Event()
MET = threading.Event()
"""A step is being made again, and another one met that."""


@pytest.mark.unchecked
def test_ctrl_c_keeps_finished_steps(store: Store) -> None:
    steps = [step for step in steps_of().steps if step.stage.name in ("tokenise", "average")]
    execution = ExecutionSpec(shard_rows=16)
    threads = torch.get_num_threads()

    class Stopping(Told):
        @contextmanager
        def running(self, name: str) -> Iterator[Progress]:
            def progress(done: int, total: int) -> None:
                if name.startswith("average") and done:
                    raise KeyboardInterrupt

            with super().running(name):
                yield progress

    with pytest.raises(KeyboardInterrupt):
        run_here(steps, store, execution, Stopping())
    assert torch.get_num_threads() == threads
    assert {*artifacts(store.root, "tokenise", "average")} == {steps[0].address}
    assert not list(store.scratch.iterdir())
    assert not active_runs(store)
    reporter = Told()
    run_here(steps, store, execution, reporter)
    assert reporter.ran == [steps[1].name]


TASK |= {"train_rows": 16, "validation_rows": 16}


@pytest.mark.unchecked
@pytest.mark.parametrize("constants", ["average", "trained"])
def test_an_added_seed_runs_only_its_steps(shallow: str, tmp_path: Path, constants: str) -> None:

    def run(folder: Path, *seeds: int) -> tuple[list[str], dict[str, Any]]:
        orders = ["first_to_last", "random"]
        study = described(
            shallow, TASK, substitutes=[constants], orders=orders, keep=[1, 0.5], probe_seeds=seeds
        )
        spec = resolve_study(study, folder=Path(), origin="test")
        store = Store(folder)
        store.make()
        reporter = Told()
        steps = build_pipeline(resolve_inputs(spec).inputs()).steps[:-1]
        run_here(steps, store, spec.execution, reporter)
        return reporter.ran, {step.address: step.reference(store) for step in steps}

    def scores(artifacts: dict[str, Any]) -> dict[str, tuple[float, bytes]]:
        probes = {key: artifact for key, artifact in artifacts.items() if key.startswith("probe/")}
        return {
            key: (read_scores(artifact).scores[0].score, read_examples(artifact).tobytes())
            for key, artifact in probes.items()
        }

    _, first = run(tmp_path / "grown", 0)
    before = {key: read_metadata(artifact)["data"] for key, artifact in first.items()}
    _, grown = run(tmp_path / "grown", 0, 1)
    added = {read_metadata(artifact)["name"] for key, artifact in grown.items() if key not in first}
    assert {name.rpartition(" · ")[2] for name in added} == {"seed 1"}
    assert {key: read_metadata(artifact)["data"] for key, artifact in first.items()} == before
    ran, together = run(tmp_path / "together", 0, 1)
    assert scores(grown) == scores(together), "to the bit"
    one_pass = [name for name in ran if name.endswith("seeds 0, 1")]
    assert len(one_pass) == 3, "of the baseline, the original and half of the heads in order"


@stage("reads", version=1, runs_on="driver's machine")
def reads(context: Context, word: str, read: Step | None) -> None:
    for artifact in context.artifacts.values():
        if DAMAGES:
            DAMAGES.pop()
            (verified(artifact) / "data").write_text("damaged")
        verified(artifact)
    with context.published() as folder:
        (folder / "data").write_text(word)


@stage("late", version=1, runs_on="driver's machine")
def late(context: Context, read: Step) -> None:
    try:
        verified(*context.artifacts.values())
    finally:
        MET.set()
    with context.published() as folder:
        (folder / "data").write_text("late")


FIRST = reads.step("first", word="first", read=None)
SECOND = reads.step("second", word="second", read=FIRST)
LATE = late.step("late", read=FIRST)


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    yield Session(store, Worker(), ExecutionSpec(), Told())
    DAMAGES.clear()
    BEGUN.clear()
    MET.clear()


@pytest.mark.parametrize("steps", [(SECOND, LATE), (LATE, SECOND)], ids=["after", "before"])
def test_what_meets_an_artifact_that_is_made_again_waits_for_it(
    session: Session, steps: tuple[Step, ...]
) -> None:
    class Meeting(Told):
        @contextmanager
        def running(self, name: str) -> Iterator[Progress]:
            with super().running(name) as progress:
                # Here, as steps in this process run one at a time: one that waited in its body for
                # the other would keep it from running.
                if name == LATE.name:
                    assert BEGUN.wait(PATIENCE_SECONDS)
                if self.damages and name == FIRST.name:
                    BEGUN.set()
                    assert MET.wait(PATIENCE_SECONDS)
                yield progress

        def note(self, name: str, sentence: str) -> None:
            if not sentence.startswith("waits"):
                super().note(name, sentence)

    run_once(StepGroup((FIRST,)), session)
    session.reporter = Meeting()
    groups = [StepGroup((step,)) for step in steps]
    DAMAGES.append(None)
    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(run_once, groups, [session] * 2))
    assert session.reporter.damages == ["first"]


def test_what_is_damaged_again_ends_it(session: Session) -> None:
    run_once(StepGroup((FIRST,)), session)
    third = reads.step("third", word="third", read=SECOND)
    DAMAGES.extend([None, None])
    with pytest.raises(DamagedError, match="data"):
        run_here([SECOND, third], session.store, session.execution, Told())
    assert not third.is_complete(session.store), "the first that fails ends it"
    assert not active_runs(session.store)
