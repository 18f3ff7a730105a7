"""MLflow: a connection, its errors as one sentence, and the runs of a study, found by key and made
once.

A run carries the key of what it shows: who logs it again, or at the same time, writes to the same
run.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from papa.credentials import without_credentials
from papa.errors import PapaError, TransientError
from papa.storage.template import keep_as_template, start_from_template
from papa.study.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

SQLITE = "sqlite:///"
KEY = "papa.cell"
"""The tag with a run's key."""
PARENT = "mlflow.parentRunId"
DESCRIPTION = "mlflow.note.content"
"""The tag of an experiment or a run that MLflow shows as text above it."""
Point = tuple[str, float, int, int]
"""Of a metric: its name, a value, the time in ms and the step."""
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
_BATCH = 500
"""Points in a request; MLflow takes a thousand things."""
_NONE: Mapping[str, str] = {}


class TrackingError(PapaError):
    """MLflow's address is wrong, or MLflow refuses."""


def tracking_address(store: Store) -> str:
    """Where MLflow keeps its runs: ``MLFLOW_TRACKING_URI`` where it is set, else SQLite in the
    store.
    """
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
    """A client of the MLflow at ``address``. A SQLite file that is missing is created.

    Raises:
        TrackingError: no MLflow can be at the address, or its database is of another version.
    """
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
    """Find out within seconds whether a study can be logged, before hours are spent on it.

    Raises:
        TransientError: the server cannot be reached.
        TrackingError: it refuses, or the address is wrong.
    """
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
    """Create a database aside and link it into place, whole.

    MLflow creates one in many steps: two processes that do so at once break each other, and one
    that is killed leaves a database that none can open.
    """
    if database.exists():
        with closing(sqlite3.connect(database)) as there:
            there.execute("PRAGMA schema_version")  # An error where something else lies there.
        return
    from mlflow import MlflowClient

    database.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{database.name}.", dir=database.parent) as scratch:
        fresh, whole = Path(scratch) / "fresh", Path(scratch) / "whole"
        start_from_template("mlflow", fresh)
        MlflowClient(f"{SQLITE}{fresh}")
        # MLflow makes the first experiment anew where there is none: its files lie where it was
        # made.
        keep_as_template(
            "mlflow", fresh, lambda copy: bool(copy.execute("DELETE FROM experiments"))
        )
        # A copy, for MLflow keeps the first one open.
        shutil.copyfile(fresh, whole)
        with suppress(FileExistsError):
            os.link(whole, database)


@contextmanager
def tracking_errors(address: str) -> Iterator[None]:
    """MLflow's errors as one sentence.

    Raises:
        TransientError: the server cannot be reached.
        TrackingError: anything else that MLflow says.
    """
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
        if any(isinstance(one, RequestException) for one in (error, error.__context__)):
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


def now() -> int:
    """In ms, as MLflow counts."""
    return int(time.time() * 1000)


@dataclass(frozen=True, eq=False)
class Entry:
    """What a run shows: the key that it is found by, its name, its parameters, and tags that people
    look for.
    """

    key: str
    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class Runs:
    """The runs of a study's experiment, which is made or restored where it is not there.

    Attributes:
        experiment: its id.
        by_key: its runs; of several with one key the oldest.
    """

    def __init__(self, client: MlflowClient, study: str, store: Store, note: str) -> None:
        self.client, self.experiment = client, _experiment(client, study, store, note)
        self.by_key = self._found()
        self._made: dict[str, Run] = {}

    def get(self, entry: Entry, **tags: str) -> Run:
        """The run of an entry, made with these tags as well where it is not there."""
        if entry.key not in self.by_key:
            tags = {
                "mlflow.source.name": "papa",
                "mlflow.user": "papa",
                KEY: entry.key,
                **entry.tags,
                **tags,
            }
            run = self.client.create_run(self.experiment, tags=tags, run_name=entry.name)
            self.by_key[entry.key] = self._made[entry.key] = run
        return self.by_key[entry.key]

    def agree(self) -> None:
        """Of what this process and another made at the same time, the older run stays."""
        made, self._made = self._made, {}
        if made:
            self.by_key = made | self._found()
        for key, run in made.items():
            if self.by_key[key].info.run_id != run.info.run_id:
                self.client.delete_run(run.info.run_id)

    def write(
        self,
        entry: Entry,
        values: Mapping[str, float | None],
        step: int = 0,
        *,
        points: Sequence[Point] = (),
        tags: Mapping[str, str],
        end: bool = True,
    ) -> None:
        """Log what a run does not show yet, and end it.

        Args:
            entry: whose run.
            values: metrics at ``step``; None where there is none, or none any more.
            points: further ones, which are logged as they are.
            tags: those that may change.
            end: whether it is complete.
        """
        run, new = self.get(entry), list(points)
        known = run.data
        for name, value in values.items():
            # MLflow forgets no metric: one that is gone is not a number.
            wanted = math.nan if value is None else float(value)
            if repr(wanted) != repr(known.metrics.get(name, math.nan)):
                # What two processes write at the run's own time is there once; what changes a value
                # is newer.
                new.append(
                    (name, wanted, now() if name in known.metrics else run.info.start_time, step)
                )
        params = {name: str(one) for name, one in entry.params.items() if name not in known.params}
        self.log(
            run.info.run_id,
            new,
            params,
            {name: one for name, one in tags.items() if known.tags.get(name) != one},
        )
        if end and run.info.status != "FINISHED":
            self.client.set_terminated(run.info.run_id)

    def log(
        self,
        run_id: str,
        points: Sequence[Point],
        params: Mapping[str, str] = _NONE,
        tags: Mapping[str, str] = _NONE,
    ) -> None:
        """Log to a run, in one request unless there are many points."""
        from mlflow.entities import Metric, Param, RunTag

        of_run, marks = (
            [Param(*one) for one in params.items()],
            [RunTag(*one) for one in tags.items()],
        )
        for start in range(0, len(points) or 1, _BATCH):
            metrics = [Metric(*one) for one in points[start : start + _BATCH]]
            if metrics or params or tags:
                twice(
                    partial(
                        self.client.log_batch, run_id, metrics=metrics, params=of_run, tags=marks
                    )
                )

    def _found(self) -> dict[str, Run]:
        """The runs that are there: newest first, so the oldest of a key remains."""
        found: dict[str, Run] = {}
        token = None
        while token != "":
            wanted = f"tags.`{KEY}` IS NOT NULL"
            page = self.client.search_runs(
                [self.experiment], wanted, page_token=token, max_results=1000
            )
            found |= {run.data.tags[KEY]: run for run in page}
            token = page.token or ""
        return found


def _experiment(client: MlflowClient, study: str, store: Store, note: str) -> str:
    """The id of a study's experiment."""
    location = store.mlflow_artifacts.as_uri() if database_of(client.tracking_uri) else None
    if client.get_experiment_by_name(study) is None:
        with _overtaken("RESOURCE_ALREADY_EXISTS"):
            return client.create_experiment(study, location, {DESCRIPTION: note})
    found = client.get_experiment_by_name(study)
    assert found is not None, "it was there, or another process has just made it"
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def twice(write: Callable[[], object]) -> object:
    """Write; where another process wrote the same meanwhile, MLflow refuses, and the second time
    finds it there.
    """
    with _overtaken("BAD_REQUEST"):
        return write()
    return write()


@contextmanager
def _overtaken(code: str) -> Iterator[None]:
    """The block goes on behind it where MLflow refuses with this code, as another process was
    faster.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise
