"""Prefect's API and pages, served on a socket that listens already."""

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from filelock import FileLock
from prefect.server.api.server import create_app
from prefect.settings import PREFECT_HOME, PREFECT_SERVER_LOGGING_LEVEL

_START_SECONDS = 300


class _Server(uvicorn.Server):
    """Prefect's server, which calls ``on_ready`` once it answers."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Two servers that make or migrate the tables of one database at once break each other.
        home = Path(PREFECT_HOME.value())
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / "papa-server.lock", timeout=_START_SECONDS):
            await super().startup(sockets)
        self._on_ready()


def serve(listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM; call ``on_ready`` once the server answers."""
    config = uvicorn.Config(
        create_app(final=True),
        log_level=PREFECT_SERVER_LOGGING_LEVEL.value().lower(),
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    _Server(config, on_ready).run(sockets=[listener])
