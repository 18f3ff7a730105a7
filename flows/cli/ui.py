"""``papa ui``: Prefect's and MLflow's own servers on loopback, each behind a password."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from flows.cli.options import DEFAULT_STORE, StoreAddress, Verbose, one_sentence
from flows.cli.terminal import say
from flows.server import free_port, prepare_engines, server_settings
from papa.credentials import without_credentials
from papa.errors import PapaError


def ui(store: StoreAddress = DEFAULT_STORE, verbose: Verbose = False) -> None:
    """Serve Prefect's pages, and MLflow's of a store, until Ctrl-C."""
    with one_sentence(verbose), TemporaryDirectory(prefix="papa-ui-") as folder:
        from papa.storage.store import Store

        opened, console, output = Store(store), Console(), None if verbose else subprocess.DEVNULL
        prepare_engines(opened.root, verbose=verbose)
        opened.make()
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME

        from tasks.mlflow import SQLITE, connect, tracking_address

        started: list[tuple[list[str], dict[str, str]]] = []
        host = ["--host", "127.0.0.1", "--port"]
        if there := PREFECT_API_URL.value():
            say(console, f"Prefect  {without_credentials(there).removesuffix('/api')}")
        else:
            port = free_port()
            settings = server_settings(PREFECT_HOME.value(), port)
            password = settings["PREFECT_API_AUTH_STRING"]
            say(console, f"Prefect  http://127.0.0.1:{port}   {password}")
            started.append((["prefect", "server", "start", *host, str(port)], settings))
        if (tracking := tracking_address(opened)).startswith(SQLITE):
            connect(tracking)
            port, settings = free_port(), _mlflow_settings(Path(folder))
            password = settings["MLFLOW_AUTH_ADMIN_PASSWORD"]
            say(console, f"MLflow   http://127.0.0.1:{port}   papa:{password}")
            files = opened.mlflow_artifacts.as_uri()
            kept = ["--backend-store-uri", tracking, "--artifacts-destination", files]
            # Run by gunicorn it has no assistant, which runs commands.
            served = ["--app-name", "basic-auth", "--gunicorn-opts", "--log-level error"]
            command = ["mlflow", "server", *host, str(port), "--workers", "1", *kept, *served]
            started.append((command, settings))
        else:
            say(console, f"MLflow   {without_credentials(tracking)}")
        say(console, "Ctrl-C ends what was started.")
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", *command],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for command, settings in started
        ]
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        raise PapaError(
            "a server ended by itself: 'papa ui --verbose' shows why (MLflow's pages need a "
            "password here: pip install 'mlflow[auth]')"
        )


def _mlflow_settings(folder: Path) -> dict[str, str]:
    (config := folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{folder}/users.db\n"
    )
    return {
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_USERNAME": "papa",
        "MLFLOW_AUTH_ADMIN_PASSWORD": secrets.token_urlsafe(24),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
