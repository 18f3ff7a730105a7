"""Web applications in processes of their own, on loopback, for this machine's programs and their
own pages alone. They end with the process that started them: as it exits, and, where it is killed,
by the signal that the kernel sends its children (Linux).
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
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from papa.errors import PapaError
from papa.imports import uncollected

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")
_START_SECONDS, _END_SECONDS = 90.0, 30.0
_LOOK_SECONDS, _PAUSE_SECONDS = 1.0, 0.1
_STARTS = 3
_PR_SET_PDEATHSIG = 1


class Served:
    """An application that starts or runs; where its process ends before its time it is started
    again, which ``lost`` is told each time.

    ``app`` is ``module:function``; the function makes it (ASGI) from its own address. It listens on
    ``port`` where that is free, and answers ``path`` once it has started. The socket stays open
    meanwhile, so requests wait. Where it cannot be started they are refused.
    """

    def __init__(
        self, name: str, app: str, path: str, log: Path, env: Mapping[str, str], *, port: int = 0
    ) -> None:
        self._name, self.log = name, log
        self.lost: Callable[[str], object] = lambda _: None
        self._app, self._env, self._path = app, env, path
        self._tried, self._changing = threading.Event(), threading.Lock()
        self._ending = self._refused = False
        try:
            self._listening = socket.create_server((HOST, port))
        except OSError:
            self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.address = f"http://{HOST}:{self.port}"
        self.log.unlink(missing_ok=True)
        self._start()
        threading.Thread(target=self._keep, name=f"keeper of {name}", daemon=True).start()
        atexit.register(self.end)

    def wait(self) -> None:
        """Return once it answers, after its start or another one."""
        if not self._tried.wait(_START_SECONDS) or self._refused:
            raise PapaError(f"{self._name}'s server did not start: {self.log} says why")

    def let_go(self) -> None:
        """Start it no more."""
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

    def _start(self) -> None:
        descriptor = self._listening.fileno()
        arguments = [self._app, str(descriptor), str(os.getpid())]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, *arguments],
                env={**os.environ, **self._env},
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _keep(self) -> None:
        """Start it again whenever it ends, until it has ended without an answer some times in a
        row.

        A thread that lives as long as this process: the kernel ends what a thread started with it.
        """
        failures, why = 0, f"{self.log} says why"
        while True:
            failures = 0 if self._has_answered() else failures + 1
            self.process.wait()
            with self._changing:
                if self._ending:
                    return
                self._tried.clear()
                if failures == _STARTS:
                    break
                try:
                    self._start()
                except OSError as error:
                    why = str(error)
                    break
            if not failures:
                self.lost("is started again")
        self._refused = True
        self._tried.set()
        self.lost(f"cannot be started again ({why})")
        # The application's event loop had it return at once, and this thread would never rest.
        self._listening.setblocking(True)
        # For ever, and with "gone": after anything else clients try again.
        while True:
            with suppress(OSError), self._listening.accept()[0] as connection:
                connection.settimeout(_LOOK_SECONDS)
                connection.recv(2**16)
                connection.sendall(
                    b"HTTP/1.1 410 Gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
                )

    def _has_answered(self) -> bool:
        """Wait until it answers, or ends before."""
        while not answers(self.port, self._path, _LOOK_SECONDS):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PAUSE_SECONDS)
                return False
        self._tried.set()
        return True


def answers(port: int, path: str, patience: float) -> bool:
    """Whether an application on this machine answers a request within ``patience`` seconds."""
    try:
        with closing(http.client.HTTPConnection(HOST, port, timeout=patience)) as connection:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def origins(port: str) -> list[str]:
    """Where the pages of an application on this machine come from."""
    return [f"http://{name}{port}" for name in _NAMES]


def _run(app: str, descriptor: int, parent: int) -> None:
    """Run an application on a socket, as a process of its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    listening = socket.socket(fileno=descriptor)
    module, _, function = app.partition(":")
    with uncollected():
        import uvicorn

        address = f"http://{HOST}:{listening.getsockname()[1]}"
        made = _for_own_pages(getattr(import_module(module), function)(address))
    # As it ends there is nothing to look through for garbage either.
    atexit.register(gc.freeze)
    uvicorn.Server(uvicorn.Config(made, log_level="error", lifespan="on")).run(sockets=[listening])


def _for_own_pages(app: Any) -> Any:
    """Refuse what a page of another site asks: under a name of its own that leads here (DNS
    rebinding), or across origins."""
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

    host = re.compile(rf"(?:{'|'.join(map(re.escape, _NAMES))})((?::\d+)?)")

    def is_own(headers: Headers) -> bool:
        found = host.fullmatch(headers.get("host", ""))
        return found is not None and headers.get("origin") in (None, *origins(found[1]))

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        allowed = scope["type"] == "lifespan" or is_own(Headers(scope=scope))
        refusal = PlainTextResponse("not for pages of other sites", 403)
        await (app if allowed else refusal)(scope, receive, send)

    return answer


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
