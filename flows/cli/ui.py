"""``papa ui``: Prefect's and MLflow's own servers on loopback, each behind a password."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from flows.cli.options import DEFAULT_STORE, StoreAddress, Verbose, one_sentence
from flows.server import free_port, prepare_engines, server_settings
from papa.credentials import without_credentials
from papa.errors import PapaError

_AUTH = "[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{}/users.db\n"


def ui(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Serve Prefect's and MLflow's pages until Ctrl-C."""
    with one_sentence(verbose), TemporaryDirectory(prefix="papa-ui-") as folder:
        from papa.storage.store import Store

        opened, output = Store(store), None if verbose else subprocess.DEVNULL
        prepare_engines(opened.root, verbose=verbose)
        opened.make()
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME

        from tasks.mlflow_address import (
            artifact_folder,
            connect,
            database_of,
            tracking_address,
            unread_database,
        )

        processes, ports = list[subprocess.Popen[bytes]](), (free_port(), free_port())

        def start(name: str, port: int, login: str, more: dict[str, str], *command: str) -> None:
            typer.echo(f"{name:<8} http://127.0.0.1:{port}   {login}")
            host = ["--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", *command, *host],
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            processes.append(process)

        if there := PREFECT_API_URL.value():
            typer.echo(f"Prefect  {without_credentials(there).removesuffix('/api')}")
        else:
            more = server_settings(PREFECT_HOME.value(), ports[0])
            login = more["PREFECT_API_AUTH_STRING"]
            start("Prefect", ports[0], login, more, "prefect", "server", "start")
        if unread := unread_database(opened):
            typer.echo(unread, err=True)
        tracking = tracking_address()
        database = database_of(tracking)
        if database:
            connect(tracking)
            (config := Path(folder, "auth.ini")).write_text(_AUTH.format(folder))
            more = {
                "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
                "MLFLOW_AUTH_CONFIG_PATH": str(config),
                "MLFLOW_AUTH_ADMIN_USERNAME": "papa",
                "MLFLOW_AUTH_ADMIN_PASSWORD": (password := secrets.token_urlsafe(24)),
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            }
            kept = ["--backend-store-uri", tracking]
            kept += ["--artifacts-destination", artifact_folder(database).as_uri()]
            # Run by gunicorn it has no assistant, which runs commands.
            how = ["--workers", "1", "--app-name", "basic-auth"]
            how += ["--gunicorn-opts", "--log-level error"]
            start("MLflow", ports[1], f"papa:{password}", more, "mlflow", "server", *kept, *how)
        else:
            typer.echo(f"MLflow   {without_credentials(tracking)}")
        typer.echo("Ctrl-C ends what was started.")
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        raise PapaError(
            "a server ended by itself: 'papa ui --verbose' shows why (MLflow's pages need a "
            "password here: pip install 'mlflow[auth]')"
        )
