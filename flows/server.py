"""Prefect's server, as settings name it or one of the study's own; what engines read at import."""

from __future__ import annotations

import logging
import os
import random
import secrets
import select
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError, joined
from papa.files import cache_folder

_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOOPBACK = "127.0.0.1,localhost,::1"
_PATHS = (
    *("PREFECT_HOME", "PREFECT_PROFILES_PATH", "PREFECT_LOGGING_SETTINGS_PATH"),
    *("PREFECT_LOGGING_CONFIG_PATH", "PAPA_CACHE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"),
    *("RAY_AUTH_TOKEN_PATH", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "TMPDIR"),
)
"""Variables that hold a path, which may be relative to the working folder."""
_SQLITE = "sqlite:///"
_START_SECONDS = 300
_LOOK_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""How often a server that settings name is looked after; how long a study waits for its answers."""


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


def open_standard_streams() -> None:
    """A standard stream that is closed reads and writes nothing: else its number would go to the
    next file, which processes started here would take for theirs.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def settle_umask(folder: Path) -> None:
    """What is written is its owner's alone, or the group's that may write to the folder."""
    shared = folder.is_dir() and folder.stat().st_mode & stat.S_IWGRP
    os.umask(0o007 if shared else 0o077)


def missing_engines(*modules: str) -> str:
    """What running a study needs, or ``modules`` besides, and is not installed, in a sentence;
    else "".
    """
    names = ("prefect", "ray", "mlflow", *modules)
    missing = joined(name for name in names if find_spec(name) is None)
    return missing and (
        f"studies run on Prefect, Ray and MLflow, and {missing} cannot be found here: install "
        "PAPA with its extra 'studies', by pip install '.[studies]' in a checkout, or by pip "
        "install 'papa_attention-….whl[studies]' (docs/install.md)"
    )


@contextmanager
def outside_working_folder() -> Iterator[None]:
    """Run the block in an empty folder of the user's own. Engines take settings and modules from
    the folder in which they are started (.env, prefect.toml, gunicorn.conf.py, sqlalchemy.py), and
    somebody else's study may lie there. Paths in the environment stay what they were.
    """
    for name in _PATHS:
        path = os.environ.get(name)
        if path and not path.startswith("~"):
            os.environ[name] = os.path.abspath(path)
    tracking = os.environ.get("MLFLOW_TRACKING_URI", "")
    if tracking.startswith(_SQLITE):
        path = os.path.abspath(tracking.removeprefix(_SQLITE))
        os.environ["MLFLOW_TRACKING_URI"] = f"{_SQLITE}{path}"
    searched = os.environ.get("PYTHONPATH")
    if searched:
        # An empty entry is the working folder.
        folders = [os.path.abspath(folder) for folder in searched.split(os.pathsep) if folder]
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    with _empty_folder() as descriptor, chdir(descriptor):
        yield


@contextmanager
def _empty_folder() -> Iterator[int]:
    """An open descriptor of an empty folder that only this user may write to."""
    folder = cache_folder() / f"empty-{os.geteuid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refusal = PapaError(
        f"{folder} must be empty and writable only by you, because Prefect, Ray and MLflow "
        "are started in it: remove its content, or set PAPA_CACHE to another folder"
    )
    try:
        descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise refusal from None
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid() or state.st_mode & 0o022 or os.listdir(descriptor):
            raise refusal
        yield descriptor
    finally:
        os.close(descriptor)


def prepare_engines(folder: Path, *modules: str, verbose: bool) -> None:
    """To be called before Prefect is imported; with ``verbose`` engines show what they log.
    ``modules`` are needed beside those of a study.
    """
    missing = missing_engines(*modules)
    if missing:
        raise PapaError(missing)
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"):
        proxy = os.environ.get(name.lower()) or os.environ.get(name, "")
        if proxy.startswith("socks") and find_spec("socksio") is None:
            raise PapaError(
                f"{name} is {proxy}, and SOCKS proxies need another package: run pip install "
                f"'httpx[socks]', or unset {name}"
            )
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


def listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether a process, or one below it, accepts connections on a port."""
    with suppress(psutil.Error):
        started = psutil.Process(process.pid)
        for member in (started, *started.children(recursive=True)):
            for connection in member.net_connections("tcp"):
                if (connection.status, connection.laddr[1:]) == (psutil.CONN_LISTEN, (port,)):
                    return True
    return False


def _server_settings(home: Path, port: int) -> dict[str, str]:
    """The environment of a server on loopback, with the user's own database, and its clients."""
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

    ``settings`` are the environment of its clients, with its address and its password.
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
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    if PREFECT_API_URL.value():
        return None
    server = PrefectServer.start(
        PREFECT_HOME.value(), PREFECT__SERVER_EPHEMERAL="1", PREFECT_UI_ENABLED="0"
    )
    os.environ |= server.settings

    # While it starts.
    import prefect.client.orchestration  # noqa: F401
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()
    return server


def watch_named_server(tell: Callable[[str], object]) -> threading.Event:
    """Look after the server that settings name, in a thread: ``tell`` that it does not answer, and
    after a minute have requests fail at once, each of which would be repeated for another minute.
    The event is set while it does not answer.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import (
        PREFECT_CLIENT_MAX_RETRIES,
        get_current_settings,
        temporary_settings,
    )

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
