"""A disk that is full or read-only in the middle of a study, and files whose times are wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

from tests.faults.disks import allow_writing, fill, forbid_writing, small_disk
from tests.faults.life import Live
from tests.faults.points import NAMED, Seen

pytestmark = pytest.mark.faults


class Trouble:
    """What is done to a running study: ``begin`` at a point, and ``end`` once a line says that it
    was noticed.
    """

    def __init__(
        self, point: str, begin: Callable[[], object], noticed: str, end: Callable[[], object]
    ) -> None:
        self.point, self.begin, self.noticed, self.end = NAMED[point], begin, noticed, end
        self.begun = self.ended = False

    def __call__(self, seen: Seen, process: subprocess.Popen[str]) -> None:
        if not self.begun and self.point.reached(seen):
            self.begun = True
            self.begin()
        elif self.begun and not self.ended and any(self.noticed in line for line in seen.lines):
            self.ended = True
            self.end()


def test_the_stores_disk_is_full_until_there_is_room(
    undisturbed: pandas.DataFrame, live: Live, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "store" / "artifacts", 32) as disk:
        life = live(tmp_path / "store")
        trouble = Trouble(
            "average started",
            lambda: fill(disk),
            "is full: free some space",
            lambda: (disk / "fill").unlink(),
        )
        code = life.once(trouble)
        assert trouble.ended
        if code:
            life.live([])
        life.check(undisturbed)


def test_the_store_is_read_only_for_a_while(
    undisturbed: pandas.DataFrame, live: Live, tmp_path: Path
) -> None:
    folder = tmp_path / "store" / "artifacts"
    life = live(tmp_path / "store")
    trouble = Trouble(
        "rank started",
        lambda: forbid_writing(folder),
        "is read-only",
        lambda: allow_writing(folder),
    )
    try:
        code = life.once(trouble)
    finally:
        if trouble.begun and not trouble.ended:
            allow_writing(folder)
    assert trouble.ended
    if code:
        life.live([])
    life.check(undisturbed)
