"""The connection to MLflow, a SQLite file or a tracking server, and its errors as one sentence."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError
from papa.study.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # Requests are repeated for minutes otherwise.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class TrackingError(PapaError):
    """MLflow's address is wrong, or MLflow refuses."""


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI``, else SQLite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.mlflow_database}"


def without_password(address: str) -> str:
    """An address fit to be shown and stored."""
    parts = urlsplit(address)
    if parts.password is None:
        return without_credentials(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{host}"))


def connect(address: str) -> MlflowClient:
    """A client of the MLflow at ``address``. A SQLite file that is missing is created, whole."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    database = Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None
    if address == SQLITE or not (database or urlsplit(address).scheme in ("http", "https")):
        raise TrackingError(
            f"MLflow's address {without_password(address)} must be {SQLITE}FILE or "
            "http(s)://HOST:PORT, which a server for any other database has (mlflow server "
            "--backend-store-uri): set MLFLOW_TRACKING_URI"
        )
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with tracking_errors(address):
        if database is not None:
            _make_database(database)
        return MlflowClient(address)


def _make_database(database: Path) -> None:
    """Two processes that make its tables at once break each other, and one that is killed meanwhile
    leaves what none can open: so they are made aside, and the file appears whole.
    """
    if database.is_symlink():
        raise TrackingError(
            f"MLflow's database {database} is a link, which is not followed: remove it, or set "
            "MLFLOW_TRACKING_URI to the database that is meant"
        )
    if database.exists():
        with closing(sqlite3.connect(database)) as there:
            there.execute("PRAGMA schema_version")  # An error where something else lies there.
        return
    from mlflow import MlflowClient

    try:
        with TemporaryDirectory(prefix=f".{database.name}.", dir=database.parent) as scratch:
            made, whole = Path(scratch) / "made.db", Path(scratch) / "whole.db"
            MlflowClient(f"{SQLITE}{made}")
            # A copy, as MLflow keeps the first one open.
            with closing(sqlite3.connect(made)) as old, closing(sqlite3.connect(whole)) as new:
                old.backup(new)
            try:
                os.link(whole, database)
            except OSError:  # It is there, or the file system has no hard links.
                if not database.exists():
                    whole.replace(database)
    except OSError as error:
        raise TrackingError(
            f"MLflow's database {database} cannot be made ({error.strerror}): set "
            "MLFLOW_TRACKING_URI to another"
        ) from None


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    shown = without_password(address)
    try:
        yield
    except (
        MlflowException,
        RequestException,
        SQLAlchemyError,
        CommandError,
        sqlite3.Error,
    ) as error:
        words = str(error).replace(address.rstrip("/"), shown).strip() or type(error).__name__
        why = words.splitlines()[0].split(". ")[0].rstrip(".")
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
        if "database is locked" in str(error):
            raise TransientError(
                f"MLflow's database {shown} is locked by another program: end that, or wait for "
                "it, and run again"
            ) from error
        raise TrackingError(
            f"MLflow at {shown} cannot be used ({why}): mend it, or set MLFLOW_TRACKING_URI to "
            "another, which begins without its runs"
        ) from error
