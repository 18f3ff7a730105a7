"""``papa prune`` and the processes that said they use the store."""

from __future__ import annotations

import os
import socket
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from flows.prune import prune
from papa.errors import ArtifactError
from papa.processes import Process
from papa.study.store import Store

DAY = 24 * 3600


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    made.make()
    return made


def said(store: Store, process: str, days_ago: float) -> Path:
    """What a process left that said so many days ago that it uses the store."""
    place, moment = Path(store.runs) / process, time.time() - days_ago * DAY
    store.backend.touch(f"runs/{process}")
    os.utime(place, (moment, moment))
    return place


@pytest.mark.parametrize("days_ago", [0, 2, 30 * 365])
def test_what_a_killed_process_said_goes_however_long_ago(store: Store, days_ago: float) -> None:
    # Its id was used again, by this process.
    name = str(Process(socket.gethostname(), os.getpid(), 1))
    place = said(store, name, days_ago)
    printed = StringIO()
    prune(store, Console(file=printed, width=200), really=True)
    assert "its process was killed" in printed.getvalue()
    assert not place.exists()


def test_another_machine_is_believed_for_a_day(store: Store) -> None:
    place = said(store, "elsewhere:1:2", 0.5)
    damaged = store.scratch / "papa-ray-abc"
    damaged.mkdir(parents=True)
    with pytest.raises(
        ArtifactError, match=r"a study uses .* \(process 1 on elsewhere, last heard of"
    ):
        prune(store, Console(file=StringIO()), really=True)
    assert place.exists()
    assert damaged.exists()
    said(store, "elsewhere:1:2", 2)
    prune(store, Console(file=StringIO()), really=True)
    assert not place.exists()
    assert not damaged.exists()
