"""A disk that is full in the middle of a study."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pandas
import pytest

from tests.faults.life import Live
from tests.faults.points import NAMED, Seen

pytestmark = pytest.mark.faults


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MB where a store has its artifacts."""
    place = tmp_path / "store" / "artifacts"
    place.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", "size=32m"]
    try:
        subprocess.run(["mount", *options, "none", str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_the_stores_disk_is_full_until_there_is_room(
    undisturbed: pandas.DataFrame, live: Live, disk: Path
) -> None:
    life, states = live(disk.parent), ["room", "full", "room again"]

    def fill(seen: Seen, process: subprocess.Popen[str]) -> None:
        if states[0] == "room" and NAMED["average started"].reached(seen):
            del states[0]
            with (disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
        elif states[0] == "full" and any("is full: free some" in line for line in seen.lines):
            del states[0]
            (disk / "fill").unlink()

    code = life.once(fill)
    assert states == ["room again"]
    if code:
        life.live([])
    life.check(undisturbed)
