"""A Prefect server of one command's own, which ends with it.

Nothing here imports Prefect, which takes a second: the server's process starts before, and says
whether Prefect's settings name another server.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from enum import Enum

from papa.errors import PapaError, TransientError

_START_SECONDS = 300
SERVER_SETTINGS = "PAPA_PREFECT_SETTINGS"
"""Variable of the server's process with its settings as JSON, if no other server is named."""


class StartupMessage(Enum):
    """What the server's process writes while it starts: a byte each."""

    NAMED = b"n"
    """Prefect's settings name a server: this one ends."""
    UNREADABLE = b"u"
    """Prefect's settings cannot be read: why follows, and this one ends."""
    STARTING = b"s"
    """They name none: this one starts."""
    READY = b"r"
    """It answers requests."""


def _server_environment(port: int) -> dict[str, str]:
    """Return the environment of a server on loopback and of its clients."""
    login = f"papa:{secrets.token_urlsafe(24)}"
    return {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_AUTH_STRING": login,
        "PREFECT_SERVER_API_BASE_PATH": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        # Blocks are settings kept on a server. To list their types takes a second.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        # Nobody watches for heartbeats here, and the end of a flow waits for the last one.
        "PREFECT_FLOWS": '{"heartbeat_frequency": null}',
    }


class PrefectServer:
    """A Prefect server of this process alone, which ends with it, also where that is killed.

    Attributes:
        process: The server's process.
        settings: The environment of its clients, with its address and its password.
    """

    def __init__(self, **environment: str) -> None:
        """Start the server on a new port of loopback, with ``environment`` besides."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        port = listener.getsockname()[1]
        # Stays open here as well: nobody gets the port, nor the password, if the server dies.
        descriptor = listener.detach()
        self.settings: Mapping[str, str] = _server_environment(port)
        self._is_ready = False
        settings = json.dumps({**self.settings, **environment})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "papa.flows.serve", str(descriptor)],
            env={**os.environ, SERVER_SETTINGS: settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            bufsize=0,
            start_new_session=True,  # A terminal's Ctrl-C is this process's.
        )

    def __enter__(self) -> PrefectServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Later it ends as its input does, with this process, and keeps the last log lines of a run.
        if kind is not None and not self._is_ready:
            self.process.kill()

    def use_unless_named(self) -> bool:
        """Have this process ask the server, unless Prefect's settings name another: then this one
        ends. Return whether it is asked. To be called once, before Prefect is imported.
        """
        match self._read():
            case StartupMessage.NAMED.value:
                return False
            case StartupMessage.STARTING.value:
                os.environ |= self.settings
                return True
            case StartupMessage.UNREADABLE.value:
                output, _ = self.process.communicate()
                raise PapaError(f"Prefect's settings cannot be read: {output.decode()}")
        raise PapaError("Prefect cannot be imported: its error is above")

    def wait(self, on_end: Callable[[str], object]) -> None:
        """Wait until the server answers. From then on ``on_end`` is called with a sentence, from
        another thread, when it ends before this process: its clients would wait for minutes.
        """
        if self._read() != StartupMessage.READY.value:
            from prefect.settings import PREFECT_HOME

            raise TransientError(
                "Prefect's server did not start (--verbose shows its log): check that "
                f"{PREFECT_HOME.value()}/prefect.db is writable and of this version of Prefect, "
                "or set PREFECT_HOME to another folder"
            )

        self._is_ready = True

        def watch() -> None:
            self.process.wait()
            on_end("Prefect's server on this machine was killed, or ended: run again to go on")

        threading.Thread(target=watch, name="server", daemon=True).start()

    def _read(self) -> bytes:
        """Return what the process says next; nothing if it ended or takes too long."""
        output = self.process.stdout
        assert output is not None
        answers, _, _ = select.select([output], [], [], _START_SECONDS)
        return output.read(1) if answers else b""
