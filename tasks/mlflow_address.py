"""Where MLflow keeps its runs: a server, or the user's own database; a client of it, its errors."""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from papa.errors import PapaError, TransientError
from papa.files import scratch_beside

SQLITE = "sqlite:///"
_ENVIRONMENT = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # Requests are repeated for minutes otherwise.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def tracking_folder() -> Path:
    """Return the folder with the user's own database of MLflow, and what is kept with it."""
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The specification of XDG_DATA_HOME has relative paths ignored.
    data = data if data.is_absolute() else Path("~/.local/share").expanduser()
    return data / "papa" / "mlflow"


def tracking_address() -> str:
    """Return where MLflow keeps its runs: ``MLFLOW_TRACKING_URI``, else the user's own SQLite file,
    by its absolute path.
    """
    address = os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{tracking_folder() / 'mlflow.db'}"
    database = database_of(address)
    return f"{SQLITE}{database}" if database else address


def database_of(address: str) -> Path | None:
    """Return the file of a SQLite database; None for an address of another kind."""
    return Path(address.removeprefix(SQLITE)).absolute() if address.startswith(SQLITE) else None


def artifact_folder(database: Path) -> Path:
    """Return where files of the runs in a SQLite database lie."""
    return database.with_name("mlartifacts")


def connect(address: str) -> Any:
    """Return a client of the MLflow at ``address``; create a SQLite file that is missing."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    database = database_of(address)
    with tracking_errors(address):
        if database and not database.exists():
            _make_folder(database.parent)
            # Whole: two processes that make its tables at once break each other.
            with scratch_beside(database) as scratch, suppress(FileExistsError):
                MlflowClient(f"{SQLITE}{scratch}/made.db")
                os.link(scratch / "made.db", database)
        return MlflowClient(address)


def check_tracking(address: str) -> None:
    """Raise a PapaError unless MLflow answers at ``address``; create nothing."""
    database = database_of(address)
    if database and not database.exists():
        return
    client = connect(address)
    with tracking_errors(address):
        client.search_experiments(max_results=1)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents for their owner alone, also under a group's umask."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            with suppress(FileExistsError):  # Another run may have made it meanwhile.
                path.mkdir(mode=0o700)


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """Word MLflow's errors as one sentence."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    engines = MlflowException, RequestException, SQLAlchemyError, CommandError, sqlite3.Error
    try:
        yield
    except (*engines, OSError) as error:
        words = str(error).strip() or type(error).__name__
        why = words.splitlines()[0].rstrip(".")
        passing = any(isinstance(cause, RequestException) for cause in (error, error.__context__))
        kind = TransientError if passing or "database is locked" in words else PapaError
        raise kind(f"MLflow at {address} cannot be used ({why}): {_advice(address)}") from error


def _advice(address: str) -> str:
    if address.startswith("http"):
        login = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return f"check that it runs, and that {login} may write to it"
    if address.startswith(SQLITE):
        return (
            "check that the file can be written and that no other program locks it, or set "
            "MLFLOW_TRACKING_URI"
        )
    return "set MLFLOW_TRACKING_URI to a server or a database, or unset it"
