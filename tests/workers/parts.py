"""Work for the workers of the tests; importable where they run."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from papa.progress import Progress
from papa.storage.artifacts import read_metadata
from papa.tasks.sweep import ShardLosses, losses_of_shard
from papa.worker import ClusterError
from papa.workers import WorkerPool
from tests.flows.processes import PATIENCE_SECONDS, descendants


def process_id(*, progress: Progress) -> int:
    return os.getpid()


def loaded(*, model: Any, progress: Progress) -> tuple[int, int]:
    return os.getpid(), id(model)


def class_name(*, model: Any, progress: Progress) -> str:
    return type(model).__name__


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
        pool.run(process_id, arguments={})
        below = descendants(os.getpid()).items()
        (pid,) = [pid for pid, command in below if command.split()[0].endswith(f"/{sys.argv[1]}")]
        for function, arguments in ((kill_and_wait, {"pid": pid}), (process_id, {})):
            try:
                pool.run(function, arguments=arguments)
            except ClusterError as error:
                print(error)
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def kill_started(name: str, times: int) -> None:
    """Kill the first so many processes of a name that start below this one, each at once."""
    killed = set[int]()

    def kill() -> None:
        while len(killed) < times:
            for pid, command in descendants(os.getpid()).items():
                if pid not in killed and command.partition(" ")[0].endswith(f"/{name}"):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            time.sleep(0.01)

    threading.Thread(target=kill, daemon=True).start()


def stay() -> None:
    """Start workers, print Ray's folder, and wait for ever."""
    with WorkerPool(1, "cpu") as pool:
        pool.run(process_id, arguments={})
        print(folder_below(os.getpid()), flush=True)
        time.sleep(PATIENCE_SECONDS)


def folder_below(root: int) -> Path:
    """The folder that was made for Ray, by the command line of the raylet below a process."""
    below = descendants(root).values()
    (raylet,) = [command for command in below if command.partition(" ")[0].endswith("/raylet")]
    (path,) = [word for word in raylet.split() if word.startswith("--session_dir=")]
    return Path(path.partition("=")[2]).parents[1]


def join_later(address: str, workers: int) -> None:
    """Print what a cluster lacks for so many workers, and then what a call on one returns."""
    with WorkerPool(workers, "cpu", address=address) as pool:
        pool.begin().result()
        print(pool.shortage, flush=True)
        print(pool.run(process_id, arguments={}))


def losses_of_shard_with_a_kill(*context: Any, **arguments: Any) -> ShardLosses:
    """As ``losses_of_shard``; the first worker that is called is killed before it returns."""
    killed = Path(os.environ["PAPA_TEST_KILLED"])
    losses = losses_of_shard(*context, **arguments)
    if not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return losses
