"""Prefect's and MLflow's own servers on loopback, each behind a password, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from flows.environment import free_port, own_server
from flows.terminal import say
from papa.errors import PapaError
from papa.study.store import Store
from tasks.mlflow import SQLITE, connect, tracking_address, without_password

_OUTSIDE = """SELECT artifact_uri FROM runs UNION
SELECT artifact_location FROM experiments WHERE experiment_id != 0"""


def show_pages(store: Store, console: Console, *, verbose: bool) -> None:
    """Serve the pages of the user's Prefect database and of a store's MLflow."""
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME

    output = None if verbose else subprocess.DEVNULL
    with TemporaryDirectory(prefix="papa-ui-") as folder:
        started = []
        if there := PREFECT_API_URL.value():
            say(console, f"Prefect  {without_password(there).removesuffix('/api')}")
        else:
            port = free_port(4200)
            own = own_server(PREFECT_HOME.value(), port)
            say(console, f"Prefect  http://127.0.0.1:{port}   {own['PREFECT_API_AUTH_STRING']}")
            command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
            started.append((command, own))
        if (tracking := tracking_address(store)).startswith(SQLITE):
            started.append(_mlflow(store, tracking, Path(folder), console))
        else:
            say(console, f"MLflow   {without_password(tracking)}")
        say(console, "Ctrl-C ends what was started.")
        processes = [
            subprocess.Popen(
                [sys.executable, "-P", "-m", *command],
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for command, own in started
        ]
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
        raise PapaError("a server ended by itself: 'papa ui --verbose' shows why")


def _mlflow(
    store: Store, tracking: str, folder: Path, console: Console
) -> tuple[list[str], dict[str, str]]:
    """How MLflow's server starts: run by gunicorn it has no assistant, which runs commands."""
    if find_spec("flask_wtf") is None:
        raise PapaError(
            "MLflow's pages need a password here, or any account of this machine could use the "
            f"files of yours: pip install 'mlflow[auth]', or read {tracking} in another way"
        )
    connect(tracking)
    database, files = tracking.removeprefix(SQLITE), store.mlflow_artifacts.as_uri()
    with closing(sqlite3.connect(database)) as there:
        for (place,) in there.execute(_OUTSIDE):
            if (not place.startswith(f"{files}/") and place != files) or "/.." in place:
                raise PapaError(
                    f"{database} has files outside of the store ({place}), which are not served: "
                    "remove that run or experiment"
                )
    (config := folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = {SQLITE}{folder}/users.db\n"
    )
    port, password = free_port(5000), secrets.token_urlsafe(24)
    say(console, f"MLflow   http://127.0.0.1:{port}   papa:{password}")
    own = {
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_USERNAME": "papa",
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    kept = ["--backend-store-uri", tracking, "--artifacts-destination", files]
    served = ["--app-name", "basic-auth", "--gunicorn-opts", "--log-level error"]
    return ["mlflow", "server", *where, *kept, *served], own
