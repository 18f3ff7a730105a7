"""What a step reads and finds damaged is made again, once, under its own key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from papa.errors import DamagedError
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import published, verify
from papa.study.here import ThisProcess, make
from papa.study.step import Session, Step
from papa.study.store import Store
from tests.study.told import Told


@dataclass(frozen=True, eq=False)
class Reads(Step):
    """Reads what another step wrote, which is damaged meanwhile so many times, and writes a file of
    its own.
    """

    stage: ClassVar[str] = "reads"
    version: ClassVar[int] = 1

    read: Step | None
    damages: list[None]

    def spec(self) -> dict[str, Any]:
        return {"name": self.name}

    def inputs(self) -> dict[str, Step]:
        return {"read": self.read} if self.read else {}

    def run(self, session: Session, progress: Progress) -> None:
        found = self.found(session.store)
        for artifact in found.values():
            if self.damages:
                self.damages.pop()
                (artifact.folder / "data").write_text("damaged")
            verify(artifact.folder)
        with published(self.folder(session.store), self.metadata(found)) as folder:
            (folder / "data").write_text(self.name)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    store = Store(tmp_path / "store")
    store.make()
    return Session(store, ThisProcess(), ExecutionSpec(), Told())


FIRST = Reads("first", None, [])


def made(session: Session, *steps: Step) -> tuple[list[str], list[str]]:
    """What ran, and what was damaged."""
    for step in (FIRST, *steps):
        make(step, session)
    assert all(step.is_complete(session.store) for step in (FIRST, *steps))
    told = session.reporter
    assert isinstance(told, Told)
    return told.ran, told.damages


def test_its_reader_is_repeated(session: Session) -> None:
    second = Reads("second", FIRST, [])
    third = Reads("third", second, [None])
    ran, damages = made(session, second, third)
    assert damages == ["second"]
    assert ran == ["first", "second", "third", "second", "third"]


def test_so_is_what_it_was_made_from(session: Session) -> None:
    damages: list[None] = []
    second = Reads("second", FIRST, damages)
    made(session, second)
    damages.append(None)
    assert made(session, second, Reads("third", second, [None]))[1] == ["second", "first"]


def test_what_is_damaged_again_ends_it(session: Session) -> None:
    with pytest.raises(DamagedError, match="data is damaged"):
        made(session, Reads("second", FIRST, [None, None]))
    assert session.reporter.damages == ["first"]  # type: ignore[attr-defined]
