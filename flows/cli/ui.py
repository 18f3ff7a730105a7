"""``papa ui``: Prefect's and MLflow's own servers on loopback, each behind a password."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from papa.credentials import without_credentials
from papa.errors import PapaError
from papa.flows.cli.options import DEFAULT_STORE, StoreAddress, Verbose, one_sentence
from papa.flows.environment import outside_working_folder, prepare_engines
from papa.flows.ports import free_port, listens
from papa.flows.server import PrefectServer
from papa.storage.store import Store
from papa.tasks.mlflow_address import artifact_folder, connect, database_of, tracking_address
from papa.temporary import temporary_folder

_ENDS_WITH_ITS_INPUT = 'exec 3<&0; (read _ <&3; kill 0) & exec "$0" "$@" 3<&- </dev/null'
"""A command whose process group ends as soon as its input does: when who writes it is gone."""
_AUTH = "[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{}/users.db\n"


def ui(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Serve Prefect's and MLflow's pages until Ctrl-C."""
    with one_sentence(verbose), temporary_folder("ui") as folder:
        opened = Store(store)
        with outside_working_folder():
            prepare_engines(opened.root, "flask_wtf", verbose=verbose)
            opened.make()
            _serve(Path(folder), verbose=verbose)


def _serve(folder: Path, *, verbose: bool) -> None:
    """Serve what no address names, print where, and wait until a server ends."""
    server = PrefectServer()
    prefect = server if server.use_unless_named() else None
    processes = [prefect.process] if prefect else []
    tracking = tracking_address()
    database = database_of(tracking)
    port = free_port()
    password = secrets.token_urlsafe(24)
    if database:
        connect(tracking)
        mlflow = _start_mlflow(database, tracking, folder, port, password, verbose=verbose)
        processes.append(mlflow)
    if prefect:
        prefect.wait(lambda _: None)
        address = prefect.settings["PREFECT_API_URL"].removesuffix("/api")
        typer.echo(f"Prefect  {address}   {prefect.settings['PREFECT_API_AUTH_STRING']}")
    else:
        # Prefect reads its settings when it is imported: ``prepare_engines`` came first.
        from prefect.settings import PREFECT_API_URL

        named_server = PREFECT_API_URL.value()
        typer.echo(f"Prefect  {without_credentials(named_server).removesuffix('/api')}")
    if database:
        # Whoever took the port meanwhile is not handed the password.
        while not listens(mlflow, port):
            _check_alive(processes)
            time.sleep(0.1)
        typer.echo(f"MLflow   http://127.0.0.1:{port}   papa:{password}")
    else:
        typer.echo(f"MLflow   {without_credentials(tracking)}")
    typer.echo("Press Ctrl-C to stop the servers started here.")
    while True:
        _check_alive(processes)
        time.sleep(0.5)


def _start_mlflow(
    database: Path, tracking: str, folder: Path, port: int, password: str, *, verbose: bool
) -> subprocess.Popen[bytes]:
    """Start MLflow's server on loopback, which ends with this process; ``folder`` is for its
    users.
    """
    config = folder / "auth.ini"
    config.write_text(_AUTH.format(folder))
    settings = {
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_USERNAME": "papa",
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [sys.executable, "-P", "-m", "mlflow", "server"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", tracking]
    command += ["--artifacts-destination", artifact_folder(database).as_uri()]
    # Run by gunicorn it has no assistant, which runs commands.
    command += ["--workers", "1", "--app-name", "basic-auth"]
    command += ["--gunicorn-opts", "--log-level error"]
    output = None if verbose else subprocess.DEVNULL
    return subprocess.Popen(
        ["sh", "-c", _ENDS_WITH_ITS_INPUT, *command],
        env={**os.environ, **settings},
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _check_alive(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    if any(process.poll() is not None for process in processes):
        raise PapaError("a server ended unexpectedly: 'papa ui --verbose' shows its log")
