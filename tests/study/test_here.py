"""A study's steps in this process, made once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from papa.errors import PapaError
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.study.here import ThisProcess, run_here
from papa.study.step import Session, Step
from papa.study.store import Store
from tests.flows.conftest import artifacts
from tests.study.test_steps import steps_of
from tests.study.told import Told

STAGES = ("tokenise", "average", "rank", "baseline", "probe", "aggregate")


def test_ctrl_c_ends_it_and_what_is_finished_is_kept(tmp_path: Path) -> None:
    steps = [step for step in steps_of().steps if step.stage in ("tokenise", "average")]
    store = Store(tmp_path / "store")
    store.make()
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
    assert set(artifacts(Path(store.address), *STAGES)) == {f"tokenise/{steps[0].key}"}
    assert not list(store.scratch.iterdir())
    assert not list(Path(store.runs).iterdir()), "it no longer says that it uses the store"
    told = Told()
    run_here(steps, store, execution, told)
    assert told.ran == [steps[1].name]


def test_an_encoder_is_loaded_once() -> None:
    steps = steps_of()
    process, encoders = ThisProcess("cpu"), []

    def note(*, encoder: object, progress: Progress) -> None:
        encoders.append(encoder)

    for _ in range(2):
        process.run(note, encoder=steps.parts[0].encoder, arguments={})
    assert encoders[0] is encoders[1]
    given = ThisProcess("cpu", {steps.parts[0].encoder: encoders[0]})
    given.run(note, encoder=steps.parts[0].encoder, arguments={})
    assert encoders[2] is encoders[0]


@dataclass(frozen=True, eq=False)
class Fails(Step):
    """A step that cannot be made."""

    stage: ClassVar[str] = "fails"
    version: ClassVar[int] = 1

    def spec(self) -> dict[str, Any]:
        return {"name": self.name}

    def run(self, session: Session, progress: Progress) -> None:
        raise PapaError(f"{self.name} cannot be made")


def test_the_first_step_that_fails_ends_it(tmp_path: Path) -> None:
    store, told = Store(tmp_path / "store"), Told()
    store.make()
    with pytest.raises(PapaError, match="first cannot be made"):
        run_here([Fails("first"), Fails("second")], store, ExecutionSpec(), told)
    assert told.ran == ["first"]
    assert not list(Path(store.runs).iterdir())
