"""Prefect's server: the one that ``PREFECT_API_URL`` names, checked first, one that ``papa ui``
runs on the store, or one that a study starts and that ends with it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from flows.served import HOST, Served, answers, origins
from papa.errors import PapaError, TransientError
from papa.processes import Process
from papa.storage.atomic import write_atomically
from papa.storage.cache import cache_folder
from papa.storage.metadata import bytes_of
from papa.storage.template import keep_as_template, start_from_template
from papa.study.store import Store
from tasks.mlflow import without_password

_REQUEST_SECONDS = 15.0
_RUNNING = "server.json"
_HEALTH = "/api/health"
_ROOM_BYTES = 4_000_000
_UNUSED = "SCHEDULER LATE_RUNS FOREMAN PAUSE_EXPIRATIONS CANCELLATION_CLEANUP TRIGGERS"
"""Services of a server that studies make no use of."""


class OwnServer(Served):
    """A server that is starting or runs, with its database in a store.

    It holds a lock of the store until it answers, as two would both create the tables of a new
    database.
    """

    def __init__(self, store: Store, *, pages: bool, port: int) -> None:
        self._database = store.prefect / "prefect.db"
        unused = {f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _UNUSED.split()}
        environment = {
            **unused,
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self._database}",
            # Blocks are settings kept on a server. To list their types takes a second, and PAPA
            # keeps none there.
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
            "PAPA_PREFECT_PAGES": "yes" if pages else "",
        }
        self._starting = FileLock(store.locks / "prefect-server.lock")
        self._starting.acquire()
        application, log = f"{__name__}:_application", store.prefect / "server.log"
        try:
            super().__init__(application, log, environment, _HEALTH, port=port)
        except BaseException:
            self._starting.release()
            raise

    def prepare(self) -> None:
        prepare_database(self._database)

    def wait(self) -> None:
        """Return once it answers."""
        try:
            if not self.answers():
                raise PapaError(f"Prefect's server did not start: {self.log} says why")
            if _mark(self._database).exists():
                _mark(self._database).unlink()
                keep_as_template("prefect", self._database, lambda _: True)
        finally:
            self._starting.release()

    def end(self) -> None:
        """End it; not while it makes its tables."""
        if self._starting.is_locked:
            with suppress(PapaError):
                self.wait()
        super().end()


def use_server(store: Store) -> OwnServer | None:
    """Make sure that there is a server for this process: ``PREFECT_API_URL`` names it from here on.

    It is the one that the environment names, else the one that ``papa ui`` runs on the store, else
    a new one, which is returned.
    """
    if not os.environ.get("PREFECT_API_URL"):
        port = running_server(store)
        if port is None:
            return start_own_server(store)
        os.environ["PREFECT_API_URL"] = f"http://{HOST}:{port}/api"
    return None


def start_own_server(store: Store, *, pages: bool = False, port: int = 0) -> OwnServer:
    """Start a server, with or without Prefect's pages, with its database in the store; it ends with
    this process.

    To be called from the main thread, before Prefect is imported: so Prefect finds its address, and
    has sent what it had to send when the server ends.
    """
    store.prefect.mkdir(parents=True, exist_ok=True)
    store.locks.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(store.prefect).free
    if free < _ROOM_BYTES:
        raise PapaError(
            f"the disk of {store.prefect} is full ({free:,} bytes are free, Prefect's database "
            f"takes {_ROOM_BYTES:,}): make room there, or give another folder with --store"
        )
    server = OwnServer(store, pages=pages, port=port)
    atexit.register(server.end)
    os.environ["PREFECT_API_URL"] = f"{server.address}/api"
    return server


def prepare_database(database: Path) -> None:
    """Put a template where no database is, and mark that its tables are yet to be made.

    A database that a killed server left without some of its tables is removed, as none could use
    it.
    """
    if _mark(database).exists():
        for file in (database, *database.parent.glob(f"{database.name}-*")):
            file.unlink(missing_ok=True)
    if not database.exists():
        _mark(database).touch()
        start_from_template("prefect", database)
        return
    try:
        with closing(sqlite3.connect(database)) as there:
            there.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError:  # Another program has it locked, say.
        return
    except sqlite3.DatabaseError as error:
        raise PapaError(
            f"Prefect's database {database} is damaged ({error}): remove it and run again, which "
            "loses Prefect's record of earlier runs and no result"
        ) from None


def _mark(database: Path) -> Path:
    return database.with_name(f"{database.name}.unmade")


def _application(address: str) -> Any:
    """Prefect's application, made in the process that serves it."""
    own_pages = origins(address.removeprefix(f"http://{HOST}"))
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(own_pages)
    os.environ["PREFECT_UI_API_URL"] = f"{address}/api"
    # Not in the store, where somebody else may write what a reader's browser would run.
    os.environ["PREFECT_UI_STATIC_DIRECTORY"] = str(cache_folder() / "prefect" / "pages")
    from prefect.server.api.server import create_app

    return create_app(ephemeral=not os.environ["PAPA_PREFECT_PAGES"], final=True)


@contextmanager
def found_by_runs(store: Store, server: OwnServer) -> Iterator[None]:
    """While the block runs, runs on the store use this server instead of one of their own."""
    path = store.prefect / _RUNNING
    # It lasts as long as this process, which starts it again where it is lost.
    write_atomically(path, json.dumps({"process": str(Process.this()), "port": server.port}) + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_server(store: Store) -> int | None:
    """The port of the server that ``papa ui`` runs on this store and this machine; None where there
    is none.

    What a killed one left, one of another machine, and one that does not answer are passed over.
    """
    try:
        document = json.loads(bytes_of(store.prefect / _RUNNING))
        process, port = Process.parse(document["process"]), int(document["port"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if process is None or not process.here or process.gone:
        return None
    return port if answers(port, _HEALTH, _REQUEST_SECONDS) else None


def check_server() -> None:
    """Make sure that the Prefect server answers, takes the credentials and is of a version that
    fits.
    """
    from prefect import settings
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings.context import temporary_settings

    address = without_password(settings.PREFECT_API_URL.value())
    impatient = {
        settings.PREFECT_API_REQUEST_TIMEOUT: _REQUEST_SECONDS,
        settings.PREFECT_CLIENT_MAX_RETRIES: 0,
    }
    try:
        with temporary_settings(impatient), get_client(sync_client=True) as client:
            client.raise_for_api_version_mismatch()
    except PrefectHTTPStatusError as error:
        raise PapaError(
            f"Prefect at {address} refuses the credentials (status {error.response.status_code}): "
            "set PREFECT_API_AUTH_STRING to its user:password"
        ) from None
    except RuntimeError as error:
        unfit = f"cannot be used ({str(error).rstrip('.')})"
        what = "does not answer" if error.__cause__ else unfit
        raise TransientError(
            f"Prefect at {address} {what}: start a server there, or unset PREFECT_API_URL and papa "
            "starts its own"
        ) from None
