"""A service of the stack as a process: started in a clean environment, watched, and ended by
process id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.flows.processes import descendants, wait_until

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "infra" / "services"


@dataclass
class Service:
    """A process of the stack, what it printed, and what its clients need to reach it."""

    process: subprocess.Popen[bytes]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]

    def kill(self) -> None:
        """SIGKILL to all its processes: none can say goodbye, nor miss its children before."""
        _kill(self.processes)
        self.process.wait()

    def end(self) -> None:
        known = self.processes
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        _kill([*known, *self.processes])
        self.process.wait()


@contextmanager
def started(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    user: str | None = None,
) -> Iterator[Service]:
    """A command as a process with its home and its log in ``folder``; ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=clean(folder, environment), cwd=ROOT if user is None else folder,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, user=user,
            start_new_session=True,
        )  # fmt: skip
    service = Service(process, log)
    try:
        yield service
    finally:
        service.end()


def wait_ready(service: Service, ready: Callable[[], bool]) -> None:
    """Wait until a service is ready; fail the test where it ends before, or takes too long."""
    try:
        wait_until(ready, f"{service.process.args} is ready", service.process)
    except AssertionError as error:
        pytest.fail(f"{error}:\n{service.log.read_text()}")


def run(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path | None = None,
    seconds: float = 300,
) -> str:
    done = subprocess.run(
        command, env=clean(folder or Path("/tmp"), environment), cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def clean(home: Path, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PREFECT_HOME": str(home / "prefect"),
        **more,
    }


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
