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
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.make()
    return store


def session(store: Store, told: Told) -> Session:
    return Session(store, ThisProcess(), ExecutionSpec(), told)


def test_its_reader_is_repeated(store: Store) -> None:
    first, told = Reads("first", 0.0, None, []), Told()
    second = Reads("second", 0.0, first, [])
    third, opened = Reads("third", 0.0, second, [None]), session(store, told)
    for step in (first, second, third):
        make(step, opened)
    assert told.damages == ["second"]
    assert told.ran == ["first", "second", "third", "second", "third"]
    assert all(step.is_complete(store) for step in (first, second, third))


def test_so_is_what_it_was_made_from(store: Store) -> None:
    first, told = Reads("first", 0.0, None, []), Told()
    damages: list[None] = []
    second = Reads("second", 0.0, first, damages)
    third, opened = Reads("third", 0.0, second, [None]), session(store, told)
    make(first, opened)
    make(second, opened)
    damages.append(None)
    make(third, opened)
    assert told.damages == ["second", "first"]
    assert all(step.is_complete(store) for step in (first, second, third))


def test_what_is_damaged_again_ends_it(store: Store) -> None:
    first, told = Reads("first", 0.0, None, []), Told()
    opened = session(store, told)
    make(first, opened)
    with pytest.raises(DamagedError, match="data is damaged"):
        make(Reads("second", 0.0, first, [None, None]), opened)
    assert told.damages == ["first"]
