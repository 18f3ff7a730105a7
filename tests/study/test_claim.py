"""Whoever holds a step's claim works on it; a dead process holds nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from papa.storage.store import Store, claimed
from tests.flows.processes import PATIENCE_SECONDS


def _hold(root: str, held: Any) -> None:
    with claimed(Store(root), "probe-key"):
        held.set()
        signal.pause()


@pytest.mark.server
def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, waited = context.Event(), []
    holder = context.Process(target=_hold, args=(str(tmp_path), held))
    holder.start()
    assert held.wait(PATIENCE_SECONDS)
    with claimed(Store(tmp_path), "probe-other"):
        pass
    assert holder.pid

    def kill() -> None:
        waited.append(holder.is_alive())
        os.kill(holder.pid, signal.SIGKILL)

    with claimed(Store(tmp_path), "probe-key", kill):
        pass
    assert waited == [True]
    holder.join(PATIENCE_SECONDS)
