"""The connection to MLflow, a SQLite file or a tracking server, and its errors as one sentence."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError
from papa.storage.template import make_database
from papa.study.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class TrackingError(PapaError):
    """MLflow's address is wrong, or MLflow refuses."""


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI``, else SQLite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.mlflow_database}"


def database_of(address: str) -> Path | None:
    """The file of a SQLite address; None for a server's."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def without_password(address: str) -> str:
    """An address fit to be shown and stored."""
    parts = urlsplit(address)
    if parts.password is None:
        return without_credentials(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{host}"))


def connect(address: str) -> MlflowClient:
    """A client of the MLflow at ``address``. A SQLite file that is missing is created."""
    os.environ.update(_QUIET)
    database, scheme = database_of(address), urlsplit(address).scheme
    if address == SQLITE or (database is None and scheme not in ("http", "https")):
        raise TrackingError(
            f"MLflow's address {without_password(address)} must be {SQLITE}FILE or "
            "http(s)://HOST:PORT, which a server for any other database has (mlflow server "
            "--backend-store-uri): set MLFLOW_TRACKING_URI"
        )
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with tracking_errors(address):
        try:
            if database is not None:
                _make_database(database)
        except OSError as error:
            raise TrackingError(
                f"MLflow's database {database} cannot be made ({error.strerror}): set "
                "MLFLOW_TRACKING_URI to another"
            ) from None
        return MlflowClient(address)


def check_tracking(address: str, study: str) -> None:
    """Find out within seconds whether a study can be logged, before hours are spent on it."""
    with impatient(), tracking_errors(address):
        client = connect(address)
        experiment = client.get_experiment_by_name(study)
        if experiment is not None and experiment.lifecycle_stage == "active":
            # Who may read it may not write to it.
            number = experiment.experiment_id
            client.set_experiment_tag(number, "papa.version", version("papa-attention"))


@contextmanager
def impatient() -> Iterator[None]:
    """MLflow's requests fail after seconds; it repeats them for minutes otherwise."""
    before = {name: os.environ.get(name) for name in _PATIENCE}
    os.environ.update(_PATIENCE)
    try:
        yield
    finally:
        for name in _PATIENCE:
            os.environ.pop(name, None)  # Another thread may have been here.
        os.environ.update({name: value for name, value in before.items() if value is not None})


def _make_database(database: Path) -> None:
    if database.exists():
        with closing(sqlite3.connect(database)) as there:
            there.execute("PRAGMA schema_version")  # An error where something else lies there.
        return
    from mlflow import MlflowClient

    # MLflow makes the first experiment anew where there is none: its files lie where it was made.
    make_database(
        "mlflow",
        database,
        lambda fresh: MlflowClient(f"{SQLITE}{fresh}"),
        lambda copy: copy.execute("DELETE FROM experiments"),
    )


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    shown = without_password(address)

    def reason(error: Exception) -> str:
        """The first sentence of what MLflow says."""
        words = str(error).replace(address.rstrip("/"), shown).strip() or type(error).__name__
        return words.splitlines()[0].split(". ")[0].rstrip(".")

    try:
        yield
    except (MlflowException, RequestException) as error:
        answer = getattr(error, "response", None)
        status = (
            getattr(answer, "status_code", None)
            or getattr(error, "get_http_status_code", lambda: None)()
        )
        if status in (401, 403):
            raise TrackingError(
                f"MLflow at {shown} refused the user or its password (HTTP {status}): "
                "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                "or ask its administrator for the right to edit the experiment"
            ) from error
        if any(isinstance(cause, RequestException) for cause in (error, error.__context__)):
            raise TransientError(
                f"MLflow at {shown} cannot be reached: start it, or set MLFLOW_TRACKING_URI to "
                "where it is"
            ) from error
        raise TrackingError(f"MLflow at {shown} cannot be used: {reason(error)}") from error
    except (SQLAlchemyError, CommandError, sqlite3.Error) as error:
        raise TrackingError(
            f"MLflow's database {shown} cannot be used ({reason(error)}): move it away, "
            "or set MLFLOW_TRACKING_URI to another"
        ) from error
