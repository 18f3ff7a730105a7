"""What a run keeps of itself in a store beside results: the study that ran, and why it failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from papa.errors import PapaError
from papa.files import write_atomically
from papa.spec import StudySpec
from papa.storage.store import Store
from papa.study.manifest import specification


def save_study(store: Store, study: StudySpec) -> Path:
    """Write a study's specification beside its results, so that it can be run again."""
    path = store.study(f"{study.name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, specification(study))
    return path


@contextmanager
def failure_kept(store: Store, name: str) -> Iterator[None]:
    """Where the block fails keep why, for ``papa list``; forget it where it did not."""
    failed = store.study(f"{name}.failed")
    try:
        yield
    except PapaError as error:
        write_atomically(failed, f"{error}\n")
        raise
    failed.unlink(missing_ok=True)
