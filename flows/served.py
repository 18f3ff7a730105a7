"""Web applications in processes of their own, on loopback alone, that end with the process that started them: as it
exits, and, where it is killed, by the signal that the kernel sends its children (Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from papa.imports import uncollected

HOST = "127.0.0.1"
_START_SECONDS = 90.0
_END_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Served:
    """An application that is starting or runs.

    Attributes:
        process: it.
        port: where it listens.
        log: what it prints.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def answers(self, path: str) -> bool:
        """Whether it answers; waits while it starts."""
        return answers(self.port, path, _START_SECONDS)

    def end(self) -> None:
        """End it: politely, then for good."""
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(app: str, log: Path, environment: Mapping[str, str], port: int = 0) -> Served:
    """Start an application.

    Args:
        app: ``module:function``, which makes it (ASGI) from its own address.
        log: what it prints.
        environment: laid over this process's.
        port: where to listen if it is free; 0 is any.
    """
    with _door(port) as door, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, app, str(door.fileno()), str(os.getpid())],
            env={**os.environ, **environment},
            pass_fds=[door.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return Served(process, door.getsockname()[1], log)


def _door(port: int) -> socket.socket:
    """A socket that listens, so that requests wait for the application instead of failing."""
    door = socket.socket()
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((HOST, port))
    except OSError:
        door.close()
        if not port:
            raise
        return _door(0)
    door.listen()
    return door


def answers(port: int, path: str, patience: float) -> bool:
    """Whether an application on this machine answers a request within ``patience`` seconds."""
    connection = http.client.HTTPConnection(HOST, port, timeout=patience)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _run(app: str, door: int, parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    listening = socket.socket(fileno=door)
    module, _, function = app.partition(":")
    with uncollected():
        import uvicorn

        made = getattr(import_module(module), function)(f"http://{HOST}:{listening.getsockname()[1]}")
    # As it ends there is nothing to look through either.
    atexit.register(gc.freeze)
    uvicorn.Server(uvicorn.Config(made, log_level="error", lifespan="on")).run(sockets=[listening])


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
