"""The connection to MLflow, a SQLite file or a tracking server, and what it says when it fails as one sentence."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError
from papa.storage.template import keep_as_template, start_from_template
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


def connect(address: str) -> MlflowClient:
    """A client of the MLflow at ``address``. A SQLite file that is missing is created.

    Raises:
        TrackingError: no MLflow can be at the address, or its database is of another version.
    """
    os.environ.update(_QUIET)
    database = database_of(address)
    if address == SQLITE or (database is None and urlsplit(address).scheme not in ("http", "https")):
        raise TrackingError(
            f"MLflow's address {without_password(address)} must be {SQLITE}FILE or http(s)://HOST:PORT, which a server "
            "for any other database has (mlflow server --backend-store-uri): set MLFLOW_TRACKING_URI"
        )
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with tracking_errors(address):
        if database is not None:
            try:
                _make_database(database)
            except OSError as error:
                raise TrackingError(
                    f"MLflow's database {database} cannot be made ({error.strerror}): "
                    "set MLFLOW_TRACKING_URI to another"
                ) from None
        return MlflowClient(address)


def check_tracking(address: str, study: str) -> None:
    """Find out within seconds whether a study can be logged, before hours are spent on it.

    Args:
        address: MLflow's tracking URI.
        study: the study's name, which is its experiment's.

    Raises:
        TransientError: the server cannot be reached.
        TrackingError: it refuses, or the address is wrong.
    """
    with impatient():
        client = connect(address)
        with tracking_errors(address):
            experiment = client.get_experiment_by_name(study)
            if experiment is not None and experiment.lifecycle_stage == "active":
                # Who may read it may not write to it.
                client.set_experiment_tag(experiment.experiment_id, "papa.version", version("papa-attention"))


@contextmanager
def impatient() -> Iterator[None]:
    """MLflow's requests fail after seconds; it repeats them for minutes otherwise."""
    before = {name: os.environ.get(name) for name in _PATIENCE}
    os.environ.update(_PATIENCE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _make_database(database: Path) -> None:
    """Create a database aside and link it into place, whole.

    MLflow creates one in many steps: two processes that do so at once break each other, and one that is killed
    leaves a database that none can open.

    Raises:
        sqlite3.Error: something else lies there.
    """
    if database.exists():
        with closing(sqlite3.connect(database)) as there:
            there.execute("PRAGMA schema_version")
        return
    from mlflow import MlflowClient

    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{database.name}.", dir=database.parent) as scratch:
        fresh, whole = Path(scratch) / "fresh", Path(scratch) / "whole"
        start_from_template("mlflow", fresh)
        MlflowClient(f"{SQLITE}{fresh}")
        keep_as_template("mlflow", fresh, _without_experiments)
        # A copy, for MLflow keeps the first one open.
        shutil.copyfile(fresh, whole)
        with suppress(FileExistsError):
            os.link(whole, database)


def _without_experiments(database: sqlite3.Connection) -> bool:
    """Remove the first experiment, which MLflow makes anew where there is none: its files lie where it was made."""
    database.execute("DELETE FROM experiments")
    return True


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI`` where it is set, else sqlite in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{store.mlflow_database}"


def database_of(address: str) -> Path | None:
    """The file of a SQLite address; None for a server's."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def without_password(address: str) -> str:
    """An address fit to be shown and stored."""
    parts = urlsplit(address)
    if parts.password is None:
        return without_credentials(address)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))


class TrackingError(PapaError):
    """MLflow's address is wrong, or MLflow refuses."""


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence.

    Args:
        address: MLflow's tracking URI.

    Raises:
        TransientError: the server cannot be reached.
        TrackingError: anything else that MLflow says.
    """
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    shown = without_password(address)
    try:
        yield
    except (MlflowException, RequestException) as error:
        status = _status(error)
        if status in (401, 403):
            raise TrackingError(
                f"MLflow at {shown} refused the user or its password (HTTP {status}): set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, or ask its administrator for the right to edit the experiment"
            ) from error
        if isinstance(error, RequestException) or isinstance(error.__context__, RequestException):
            raise TransientError(
                f"MLflow at {shown} cannot be reached: start it, or set MLFLOW_TRACKING_URI to where it is"
            ) from error
        raise TrackingError(f"MLflow at {shown} cannot be used: {_reason(error, address)}") from error
    except (SQLAlchemyError, CommandError, sqlite3.Error) as error:
        raise TrackingError(
            f"MLflow's database {shown} cannot be used ({_reason(error, address)}): move it away, or set "
            "MLFLOW_TRACKING_URI to another"
        ) from error


def _status(error: Exception) -> int | None:
    """The HTTP status of an answer that was an error."""
    response = getattr(error, "response", None)
    if response is not None:
        return int(response.status_code)
    status_of = getattr(error, "get_http_status_code", None)
    return status_of() if status_of else None


def _reason(error: Exception, address: str) -> str:
    """The first sentence of what MLflow says."""
    words = str(error).replace(address.rstrip("/"), without_password(address)).strip()
    return words.splitlines()[0].split(". ")[0].rstrip(".") if words else type(error).__name__


def study_experiment(client: MlflowClient, name: str, store: Store, *, note: str) -> str:
    """The id of a study's experiment, made or restored where it is not there.

    Args:
        client: of the MLflow to log to.
        name: the study's.
        store: where files go if no server keeps them.
        note: what MLflow shows above its runs.
    """
    from mlflow.exceptions import MlflowException

    location = None if database_of(client.tracking_uri) is None else store.mlflow_artifacts.as_uri()
    if client.get_experiment_by_name(name) is None:
        try:
            return client.create_experiment(name, location, tags={"mlflow.note.content": note})
        except MlflowException as error:
            # Another process was faster.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
    found = client.get_experiment_by_name(name)
    assert found is not None, "it was there, or another process has just made it"
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def settled(write: Callable[[], object]) -> None:
    """Write what may be written once; where another process wrote the same meanwhile, MLflow refuses, and the second
    time it finds it there.
    """
    from mlflow.exceptions import MlflowException

    try:
        write()
    except MlflowException as error:
        if error.error_code != "BAD_REQUEST":
            raise
        write()
