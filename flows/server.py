"""Prefect's server, as settings name it or one of the study's own.

Prefect reads its settings when it is imported: ``prepare_engines`` comes before this module.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.context import refresh_global_settings_context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_HOME,
    get_current_settings,
    temporary_settings,
)

from papa.credentials import without_credentials
from papa.errors import TransientError

_START_SECONDS = 300
_LOOK_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""How often a server that settings name is looked after; how long a study waits for its answers."""


def _server_settings(home: Path, port: int) -> dict[str, str]:
    """Return the environment of a server on loopback, with the user's own database, and its
    clients.
    """
    password = f"papa:{secrets.token_urlsafe(24)}"
    return {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_BASE_PATH": "/api",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
        # Blocks are settings kept on a server. To list their types takes a second.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        # A server that ends with its client has nobody to tell; the end of a flow waits for it.
        "PREFECT_FLOWS": '{"heartbeat_frequency": null}',
    }


@dataclass(frozen=True)
class PrefectServer:
    """A Prefect server of this process alone, which ends with it, also where that is killed.

    An error in its block ends it at once: by itself it would first make its database, and complain
    of what it cannot finish. ``settings`` are the environment of its clients, with its address and
    its password.
    """

    process: subprocess.Popen[bytes]
    settings: Mapping[str, str]

    @classmethod
    def start(cls, home: Path, **environment: str) -> PrefectServer:
        """Start the server on a new port of loopback, with the database in ``home``."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        port = listener.getsockname()[1]
        # Stays open here as well: nobody gets the port, nor the password, if the server dies.
        descriptor = listener.detach()
        os.environ.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)
        settings = _server_settings(home, port)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "papa.flows.serve", str(descriptor)],
            env={**os.environ, **settings, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
            bufsize=0,
            start_new_session=True,  # A terminal's Ctrl-C is this process's.
        )
        return cls(process, settings)

    def __enter__(self) -> PrefectServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.process.kill()

    def wait(self, lost: Callable[[str], object]) -> None:
        """Wait until the server answers. From then on ``lost`` is called with a sentence, from
        another thread, when it ends before this process: its clients would wait for minutes.
        """
        output = self.process.stdout
        assert output is not None
        answers, _, _ = select.select([output], [], [], _START_SECONDS)
        if not answers or not output.read(1):
            home = self.settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"].partition("///")[2]
            raise TransientError(
                f"Prefect's server did not start (--verbose shows its log): check that {home} "
                "is writable and of this version of Prefect, or set PREFECT_HOME to another "
                "folder"
            )

        def watch() -> None:
            self.process.wait()
            lost("Prefect's server on this machine was killed, or ended: run again to go on")

        threading.Thread(target=watch, name="server", daemon=True).start()


def start_server() -> PrefectServer | None:
    """Start Prefect's ephemeral server, unless settings name one. Prefect itself would import all
    of it into this process.
    """
    if PREFECT_API_URL.value():
        return None
    server = PrefectServer.start(
        PREFECT_HOME.value(), PREFECT__SERVER_EPHEMERAL="1", PREFECT_UI_ENABLED="0"
    )
    os.environ |= server.settings

    refresh_global_settings_context()
    return server


def watch_named_server(tell: Callable[[str], object]) -> threading.Event:
    """Watch the server that settings name, in a thread: ``tell`` that it does not answer, and after
    a minute let requests fail at once, each of which would be repeated for another minute. The
    event is set while it does not answer.
    """
    client_settings = get_current_settings().client
    retries = client_settings.max_retries
    silent = threading.Event()

    def watch() -> None:
        answered = time.monotonic()
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client({"timeout": _LOOK_SECONDS}, sync_client=True) as client,
        ):
            while True:
                time.sleep(_LOOK_SECONDS)
                if client.api_healthcheck() is None:
                    answered = time.monotonic()
                    silent.clear()
                elif not silent.is_set():
                    silent.set()
                    address = without_credentials(str(client.api_url))
                    tell(f"Prefect's server at {address} does not answer: the study goes on")
                is_patient = time.monotonic() - answered < _PATIENCE_SECONDS
                client_settings.max_retries = retries if is_patient else 0

    threading.Thread(target=watch, name="server", daemon=True).start()
    return silent
