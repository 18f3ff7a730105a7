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
from types import TracebackType

from papa.errors import TransientError

_START_SECONDS = 300
OWN_SETTINGS = "PAPA_PREFECT_SETTINGS"
"""Variable of the server's process with its settings as JSON, if no other server is named."""


class Answer(Enum):
    """What the server's process says of itself: a byte each."""

    NAMED = b"n"
    """Settings name a server: this one ends."""
    OWN = b"o"
    """They name none: this one starts."""
    READY = b"r"
    """It answers requests."""


def _server_settings(port: int) -> dict[str, str]:
    """Return the environment of a server on loopback and of its clients."""
    password = f"papa:{secrets.token_urlsafe(24)}"
    return {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_BASE_PATH": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        # Blocks are settings kept on a server. To list their types takes a second.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        # A server that ends with its client has nobody to tell; the end of a flow waits for it.
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
        self.settings: Mapping[str, str] = _server_settings(port)
        settings = json.dumps({**self.settings, **environment})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "papa.flows.serve", str(descriptor)],
            env={**os.environ, OWN_SETTINGS: settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            bufsize=0,
            start_new_session=True,  # A terminal's Ctrl-C is this process's.
        )

    def __enter__(self) -> PrefectServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # By itself it would first make its database, and complain of what it cannot finish.
        if kind is not None:
            self.process.kill()

    def is_needed(self) -> bool:
        """Return whether Prefect's settings name no other server, else this one ends. To be called
        once; then this process may import Prefect, as a client of the server that it is to ask.
        """
        if self._read() == Answer.NAMED.value:
            return False
        os.environ |= self.settings
        return True

    def wait(self, lost: Callable[[str], object]) -> None:
        """Wait until the server answers. From then on ``lost`` is called with a sentence, from
        another thread, when it ends before this process: its clients would wait for minutes.
        """
        if self._read() != Answer.READY.value:
            from prefect.settings import PREFECT_HOME

            raise TransientError(
                "Prefect's server did not start (--verbose shows its log): check that "
                f"{PREFECT_HOME.value()}/prefect.db is writable and of this version of Prefect, "
                "or set PREFECT_HOME to another folder"
            )

        def watch() -> None:
            self.process.wait()
            lost("Prefect's server on this machine was killed, or ended: run again to go on")

        threading.Thread(target=watch, name="server", daemon=True).start()

    def _read(self) -> bytes:
        """Return what the process says next; nothing if it ended or takes too long."""
        output = self.process.stdout
        assert output is not None
        answers, _, _ = select.select([output], [], [], _START_SECONDS)
        return output.read(1) if answers else b""
