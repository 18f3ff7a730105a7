"""Web applications in processes of their own, on loopback alone and for this machine's programs and their own pages
alone, that end with the process that started them: as it exits, and, where it is killed, by the signal that the kernel
sends its children (Linux).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from papa.imports import uncollected

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")
_START_SECONDS = 90.0
_STARTS = 3
_LOOK_SECONDS, _PAUSE_SECONDS = 1.0, 0.1
_END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


class Served:
    """An application that is starting or runs. Where its process ends before its time it is started again, on the
    socket that stays open meanwhile, so that requests wait for it; where it cannot be, they are refused at once.

    Args:
        app: ``module:function``, which makes it (ASGI) from its own address.
        log: what it prints.
        environment: laid over this process's.
        port: where to listen if it is free; 0 is any.
        path: what it answers once it has started.

    Attributes:
        process: it.
        port: where it listens.
        log: what it prints.
        lost: called with a sentence each time when its process ended before its time.
    """

    def __init__(self, app: str, log: Path, environment: Mapping[str, str], path: str, *, port: int = 0) -> None:
        self.log = log
        self.lost: Callable[[str], object] = lambda _: None
        self._app, self._environment, self._path = app, environment, path
        self._listening = _listen(port)
        self.port: int = self._listening.getsockname()[1]
        self._settled = threading.Event()
        self._changing, self._ending, self._refused = threading.Lock(), False, False
        self._start("wb")
        threading.Thread(target=self._keep, name=f"keeper of {app}", daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether it answers; waits while it starts, or starts again."""
        return self._settled.wait(_START_SECONDS) and not self._refused

    def before_again(self) -> None:
        """What precedes another start; nothing."""

    def let_go(self) -> None:
        """Do not start it again."""
        self._ending = True

    def end(self) -> None:
        """End it: politely, then for good."""
        with self._changing:
            self._ending = True
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if not self._refused:
            self._listening.close()

    def _start(self, mode: Literal["wb", "ab"]) -> None:
        with self.log.open(mode) as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self._app, str(self._listening.fileno()), str(os.getpid())],
                env={**os.environ, **self._environment},
                pass_fds=[self._listening.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _keep(self) -> None:
        """Start it again whenever it ends, as long as it comes to answer now and then."""
        vain = 0
        while vain < _STARTS:
            vain = 0 if self._has_answered() else vain + 1
            self.process.wait()
            with self._changing:
                if self._ending:
                    return
                self._settled.clear()
                if vain < _STARTS:
                    try:
                        self.before_again()
                        # From this thread, which lives as long as this process: its end would end the new one, too.
                        self._start("ab")
                    except OSError:
                        vain = _STARTS
            if not vain:
                self.lost("is started again")
        self._refused = True
        self._settled.set()
        self.lost(f"cannot be started again ({self.log} says why)")
        refuse(self._listening)

    def _has_answered(self) -> bool:
        """Wait until it answers, or ends before."""
        while not answers(self.port, self._path, _LOOK_SECONDS):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PAUSE_SECONDS)
                return False
        self._settled.set()
        return True


def _listen(port: int) -> socket.socket:
    """A socket that listens, so that requests wait for the application instead of failing."""
    try:
        return socket.create_server((HOST, port))
    except OSError:
        if not port:
            raise
        return _listen(0)


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


def refuse(listening: socket.socket) -> None:
    """Refuse whatever is asked at a socket, for ever: clients take "gone" for an answer, and nothing else at once."""
    while True:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.settimeout(_LOOK_SECONDS)
            connection.recv(2**16)
            connection.sendall(b"HTTP/1.1 410 Gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


def _run(app: str, descriptor: int, parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    listening = socket.socket(fileno=descriptor)
    module, _, function = app.partition(":")
    with uncollected():
        import uvicorn

        made = getattr(import_module(module), function)(f"http://{HOST}:{listening.getsockname()[1]}")
    # As it ends there is nothing to look through either.
    atexit.register(gc.freeze)
    config = uvicorn.Config(_without_strangers(made), log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[listening])


def origins(port: str) -> list[str]:
    """Where the pages of an application on this machine come from."""
    return [f"http://{name}{port}" for name in _NAMES]


def _without_strangers(app: Any) -> Any:
    """Refuse what a page of another site asks: under a name of its own that leads here (DNS rebinding), or across
    origins."""
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

    def is_ours(headers: Headers) -> bool:
        port = re.fullmatch(rf"(?:{'|'.join(map(re.escape, _NAMES))})((?::\d+)?)", headers.get("host", ""))
        return port is not None and headers.get("origin") in (None, *origins(port[1]))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        known = scope["type"] == "lifespan" or is_ours(Headers(scope=scope))
        await (app if known else PlainTextResponse("not for pages of other sites", 403))(scope, receive, send)

    return answer


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
