"""Prefect's API and pages, served on a socket that listens already."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn
from filelock import FileLock
from prefect.server.api.server import create_app
from prefect.settings import PREFECT_HOME, PREFECT_SERVER_LOGGING_LEVEL

_START_SECONDS = 300


class _Server(uvicorn.Server):
    """Prefect's server, which writes a line to ``output`` once it answers."""

    def __init__(self, config: uvicorn.Config, output: int) -> None:
        super().__init__(config)
        self._output = output

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Two servers that make or migrate the tables of one database at once break each other.
        home = Path(PREFECT_HOME.value())
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / "papa-server.lock", timeout=_START_SECONDS):
            await super().startup(sockets)
        # Nobody reads it if the study has ended meanwhile.
        with suppress(BrokenPipeError):
            os.write(self._output, b"\n")
        os.close(self._output)


def serve(listener: socket.socket, output: int) -> None:
    """Serve until SIGTERM; write a line to ``output`` once the server answers."""
    config = uvicorn.Config(
        create_app(final=True),
        log_level=PREFECT_SERVER_LOGGING_LEVEL.value().lower(),
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    _Server(config, output).run(sockets=[listener])
