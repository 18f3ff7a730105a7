"""Work for the workers of the tests; importable where they run."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from papa.progress import Progress
from papa.storage.artifacts import read_metadata
from papa.worker import ClusterError
from papa.workers import WorkerPool
from tests.flows.processes import PATIENCE_SECONDS, descendants


def own_process(*, progress: Progress) -> int:
    return os.getpid()


def loaded(*, encoder: Any, progress: Progress) -> tuple[int, int]:
    return os.getpid(), id(encoder)


def opened(*, address: str, progress: Progress) -> None:
    read_metadata(address)


def dies(*, times: int, folder: Path, progress: Progress) -> int:
    before = len(list(folder.iterdir()))
    if before < times:
        (folder / str(before)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def kill_and_wait(*, pid: int, progress: Progress) -> None:
    os.kill(pid, signal.SIGKILL)
    time.sleep(PATIENCE_SECONDS)


def lose() -> None:
    """Print what calls say whose process of Ray's, by the name given, is killed, or was before."""
    with WorkerPool(1, "cpu") as pool:
        pool.run(own_process, arguments={})
        commands = descendants(os.getpid()).items()
        (pid,) = [pid for pid, of in commands if of.split()[0].endswith(f"/{sys.argv[1]}")]
        for function, arguments in ((kill_and_wait, {"pid": pid}), (own_process, {})):
            try:
                pool.run(function, arguments=arguments)
            except ClusterError as error:
                print(error)
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
