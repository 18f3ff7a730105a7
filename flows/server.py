"""Prefect's server, as settings name it or one of the study's own; what engines read at import."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from papa.errors import PapaError, TransientError, joined

_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOOPBACK = "127.0.0.1,localhost,::1"
_ENDS_WITH_ITS_INPUT = 'exec 3<&0; (read _ <&3; kill $$) & exec "$0" "$@" 3<&- </dev/null'
"""A command that is told to end as soon as its input does: when who writes it is gone."""


def settle_environment() -> None:
    """No engine of this process sends telemetry, or reaches this machine through a proxy; and no
    flow warns that it keeps no result, which it is not to.
    """
    logging.getLogger("prefect.flow_runs").addFilter(
        lambda record: not str(record.msg).startswith("Failed to write result")
    )
    os.environ.update(_ENVIRONMENT)
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        if not known.startswith(_LOOPBACK):
            os.environ[name] = f"{_LOOPBACK},{known}".rstrip(",")


def settle_umask(folder: Path) -> None:
    """What is written is its owner's alone, or the group's that may write to the folder."""
    shared = folder.is_dir() and folder.stat().st_mode & stat.S_IWGRP
    os.umask(0o007 if shared else 0o077)


def missing_engines() -> str:
    """What running a study needs and is not installed, in a sentence; else ""."""
    missing = joined(name for name in ("prefect", "ray", "mlflow") if find_spec(name) is None)
    how = "cannot be found here: pip install 'papa-attention[studies]'"
    return missing and f"studies run on Prefect, Ray and MLflow, and {missing} {how}"


def prepare_engines(folder: Path, *, verbose: bool) -> None:
    """To be called before Prefect is imported; with ``verbose`` engines show what they log."""
    if missing := missing_engines():
        raise PapaError(missing)
    settle_umask(folder)
    level = "INFO" if verbose else "CRITICAL"
    os.environ |= {"PREFECT_LOGGING_LEVEL": level, "PREFECT_SERVER_LOGGING_LEVEL": level}
    # What runs log is kept with them, whatever the terminal shows.
    for name, level in (("flow_runs", "INFO"), ("task_runs", "WARNING")):
        os.environ[f"PREFECT_LOGGING_LOGGERS_PREFECT_{name.upper()}_LEVEL"] = level
        logging.getLogger(f"prefect.{name}").propagate = verbose
    logging.raiseExceptions = verbose
    # Threads would complain of every event that a lost server does not take.
    os.environ["PREFECT_INTERNAL_LOGGING_LEVEL"] = "ERROR" if verbose else "CRITICAL"
    logging.getLogger("websockets").setLevel(logging.ERROR if verbose else logging.CRITICAL)


def free_port() -> int:
    """A port of loopback that nobody listens on, and that neither the system nor Ray hands out."""
    while True:
        port = random.SystemRandom().randint(20_000, 32_767)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def server_settings(home: Path, port: int) -> dict[str, str]:
    """The environment of a server on loopback, with the user's own database, and its clients."""
    password = f"papa:{secrets.token_urlsafe(24)}"
    os.environ.pop("PREFECT_API_DATABASE_CONNECTION_URL", None)
    return {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
        # Blocks are settings kept on a server. To list their types takes a second.
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        # A server that ends with its client has nobody to tell; the end of a flow waits for it.
        "PREFECT_FLOWS": '{"heartbeat_frequency": null}',
    }


def start_server(lost: Callable[[str], object] = print) -> Callable[[], None]:
    """Start Prefect's ephemeral server, unless settings name one; returns what waits until it
    answers. It answers this process alone, and ends with it, also where that is killed. ``lost``
    is called with a sentence, from another thread, where it ends before: its clients would wait
    for minutes. Prefect itself would import all of it into this process.
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    if PREFECT_API_URL.value():
        return lambda: None
    port = free_port()
    os.environ |= server_settings(PREFECT_HOME.value(), port)
    app = ["--factory", "prefect.server.api.server:create_app", "--log-level", "error"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--timeout-graceful-shutdown", "5"]
    more = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    server = subprocess.Popen(
        ["sh", "-c", _ENDS_WITH_ITS_INPUT, sys.executable, "-P", "-m", "uvicorn", *app, *where],
        env={**os.environ, **more, "PREFECT_UI_ENABLED": "0"},
        stdin=subprocess.PIPE,
        start_new_session=True,  # A terminal's Ctrl-C is this process's.
    )

    # While it starts.
    from prefect.client.orchestration import get_client
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()

    def watch() -> None:
        server.wait()
        lost("Prefect's server on this machine was killed, or ended: run again to go on")

    def wait() -> None:
        end = time.monotonic() + 300
        with get_client(sync_client=True) as client:
            while client.api_healthcheck():
                if server.poll() is not None or time.monotonic() > end:
                    raise TransientError(
                        "Prefect's own server did not start (--verbose says more): see that "
                        f"prefect.db in {PREFECT_HOME.value()} can be written and is of this "
                        "version of Prefect, or set PREFECT_HOME to another folder"
                    )
                time.sleep(0.05)
        threading.Thread(target=watch, name="server", daemon=True).start()

    return wait
