"""Prefect's server: the one that ``PREFECT_API_URL`` names, one that ``papa ui`` runs on the store,
or one that a study starts and that ends with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from flows.served import HOST, Served, answers, origins
from papa.errors import PapaError
from papa.processes import Process
from papa.storage.atomic import write_atomically
from papa.storage.cache import cache_folder
from papa.storage.metadata import bytes_of
from papa.storage.template import make_database
from papa.study.store import Store

FLOW = "papa-study"
"""The flow whose runs are studies."""
_REQUEST_SECONDS = 15.0
_RUNNING = "server.json"
_SQLITE = "sqlite+aiosqlite:///"
_HEALTH = "/api/health"
_ROOM_BYTES = 4_000_000
_UNUSED = "SCHEDULER LATE_RUNS FOREMAN PAUSE_EXPIRATIONS CANCELLATION_CLEANUP TRIGGERS"
"""Services of a server that studies make no use of."""


class OwnServer(Served):
    """A server, with or without Prefect's pages, with its database in a store; it ends with this
    process.

    To be started from the main thread, before Prefect is imported: so Prefect finds its address,
    and has sent what it had to send when the server ends.
    """

    def __init__(self, store: Store, *, pages: bool = False, port: int = 0) -> None:
        store.prefect.mkdir(parents=True, exist_ok=True)
        database = store.prefect / "prefect.db"
        _check_database(database)
        environment = {
            **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _UNUSED.split()},
            "PREFECT_API_DATABASE_CONNECTION_URL": f"{_SQLITE}{database}",
            # Blocks are settings kept on a server. To list their types takes a second, and PAPA
            # keeps none there.
            "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
            "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
            "PAPA_PREFECT_PAGES": "yes" if pages else "",
        }
        app, log = f"{__name__}:_application", store.prefect / "server.log"
        super().__init__("Prefect", app, _HEALTH, log, environment, port=port)
        os.environ["PREFECT_API_URL"] = f"{self.address}/api"


def use_server(store: Store) -> OwnServer | None:
    """Make sure that there is a server for this process: ``PREFECT_API_URL`` names it from here on.

    It is the one that the environment names, else the one that ``papa ui`` runs on the store, else
    a new one, which is returned.
    """
    if not os.environ.get("PREFECT_API_URL"):
        port = running_server(store)
        if port is None:
            return OwnServer(store)
        os.environ["PREFECT_API_URL"] = f"http://{HOST}:{port}/api"
    return None


def _check_database(database: Path) -> None:
    """Refuse a disk that is full, and what is no database."""
    free = shutil.disk_usage(database.parent).free
    if free < _ROOM_BYTES:
        raise PapaError(
            f"the disk of {database.parent} is full ({free:,} bytes are free, Prefect's database "
            f"takes {_ROOM_BYTES:,}): make room there, or give another folder with --store"
        )
    if not database.exists():
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


def _application(address: str) -> Any:
    """Prefect's application, made in the process that serves it."""
    own_pages = origins(address.removeprefix(f"http://{HOST}"))
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(own_pages)
    os.environ["PREFECT_UI_API_URL"] = f"{address}/api"
    # Not in the store, where somebody else may write what a reader's browser would run.
    os.environ["PREFECT_UI_STATIC_DIRECTORY"] = str(cache_folder() / "prefect" / "pages")
    from prefect.server.api.server import create_app

    database = os.environ["PREFECT_API_DATABASE_CONNECTION_URL"].removeprefix(_SQLITE)
    make_database("prefect", Path(database), _make_tables)
    return create_app(ephemeral=not os.environ["PAPA_PREFECT_PAGES"], final=True)


def _make_tables(database: Path) -> None:
    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import (
        provide_database_interface,
        temporary_database_config,
    )

    if not database.exists():
        with temporary_database_config(AioSqliteConfiguration(f"{_SQLITE}{database}")):
            asyncio.run(provide_database_interface().create_db())


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
