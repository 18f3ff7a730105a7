"""Settings that engines read at import, and the Prefect server that a study starts."""

from __future__ import annotations

import atexit
import http.client
import logging
import os
import resource
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from papa.errors import PapaError, SpecError, TransientError, joined

_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOOPBACK = "127.0.0.1,localhost,::1"
_FILE_BYTES = 10**9
_START_SECONDS = 300.0


def settle_environment() -> None:
    """No engine that this process starts sends telemetry, or reaches this machine through a
    proxy.
    """
    os.environ.update(_ENVIRONMENT)
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        if not known.startswith(_LOOPBACK):
            os.environ[name] = f"{_LOOPBACK},{known}".rstrip(",")


def missing_engines() -> str:
    """What running a study needs and the library alone does not, where it is not installed, as a
    sentence; else "".
    """
    missing = [name for name in ("prefect", "ray", "mlflow") if find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"studies run on Prefect, Ray and MLflow, and {joined(missing)} cannot be found here: "
        "pip install 'papa-attention[studies]'"
    )


def check_file_size() -> None:
    """Refuse a limit of the shell's that databases, weights or features would reach in the middle
    of a study.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit < _FILE_BYTES:
        raise SpecError(
            f"a file may have {limit:,} bytes at most here (ulimit -f), and a study writes files "
            f"of {_FILE_BYTES:,} and more: raise it, as with ulimit -f unlimited"
        )


def prepare_engines(folder: Path, *, verbose: bool) -> None:
    """To be called before Prefect is imported. What is written is its owner's alone; the group's
    too, where it may write to ``folder``. With ``verbose`` engines show what they log.
    """
    if missing := missing_engines():
        raise PapaError(missing)
    check_file_size()
    settle_environment()
    shared = folder.is_dir() and folder.stat().st_mode & stat.S_IWGRP
    os.umask(0o007 if shared else 0o077)
    for name in ("PREFECT_LOGGING_LEVEL", "PREFECT_SERVER_LOGGING_LEVEL"):
        os.environ[name] = "INFO" if verbose else "CRITICAL"
    # What runs tell is kept with them, whatever the terminal shows.
    for name, level in (("flow_runs", "INFO"), ("task_runs", "WARNING")):
        os.environ[f"PREFECT_LOGGING_LOGGERS_PREFECT_{name.upper()}_LEVEL"] = level
        logging.getLogger(f"prefect.{name}").propagate = verbose
    logging.raiseExceptions = verbose
    # Threads would tell of every event that a lost server does not take.
    os.environ["PREFECT_INTERNAL_LOGGING_LEVEL"] = "ERROR" if verbose else "CRITICAL"
    logging.getLogger("websockets").setLevel(logging.ERROR if verbose else logging.CRITICAL)


def free_port(wanted: int = 0) -> int:
    """A port of loopback that nobody listens on: the one that is wanted, where it is free."""
    try:
        with closing(socket.create_server(("127.0.0.1", wanted))) as free:
            return int(free.getsockname()[1])
    except OSError:
        return free_port()


def own_server(home: Path, port: int) -> dict[str, str]:
    """The environment of a Prefect server on loopback with a password of its own, on the user's own
    database, whatever settings of other servers name; and of its clients.
    """
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
    }


def start_server(lost: Callable[[str], object] = print) -> Callable[[], None]:
    """Start Prefect's ephemeral server, unless the environment or the user's profile names one;
    returns what waits until the server answers. ``lost`` is called with a sentence, from another
    thread, where it ends before this process: its clients would wait for it for minutes.

    It listens on loopback, answers this process alone, and ends with it, also where that is killed.
    Prefect itself would import all of its server into this process to start one.
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    if PREFECT_API_URL.value():
        from flows.flow_runs import check_server

        return check_server
    port = free_port()
    os.environ |= own_server(PREFECT_HOME.value(), port)
    refresh_global_settings_context()
    ephemeral = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    app = ["--factory", "prefect.server.api.server:create_app", "--log-level", "error"]
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "uvicorn", *app, "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **ephemeral, "PREFECT_UI_ENABLED": "0"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # A terminal's Ctrl-C is this process's.
    )
    ending = threading.Event()
    atexit.register(server.terminate)
    atexit.register(ending.set)
    # It reads until this process is gone, however that ended.
    reader = subprocess.Popen(
        ["sh", "-c", 'read _; kill -9 "$0"', str(server.pid)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(reader.kill)

    def wait() -> None:
        end = time.monotonic() + _START_SECONDS
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > end:
                raise TransientError(
                    "Prefect's own server did not start (--verbose tells more): see that prefect.db"
                    f" in {PREFECT_HOME.value()} can be written and is of this version of Prefect, "
                    "or set PREFECT_HOME to another folder"
                )
            time.sleep(0.05)
        threading.Thread(target=watch, name="server", daemon=True).start()

    def watch() -> None:
        server.wait()
        if not ending.is_set():
            lost("Prefect's server on this machine was killed, or ended: run again to go on")

    return wait


def _answers(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", "/api/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
