"""MLflow by address: a server with users, what is no MLflow, and what is said of it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import mlflow
import pytest
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from papa.errors import PapaError, TransientError
from papa.study.store import MARKER, Store
from tasks.mlflow import TrackingError, check_tracking, connect
from tests.integration.service import Service
from tests.integration.services import mlflow_server
from tests.reporting.studies import results
from tests.tasks.tracked import (
    MODELS,
    address_in,
    assert_whole,
    log_study,
    logged,
)

FEW = results(encoders=MODELS[:1], fractions=(1.0, 0.0), seeds=(0,))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Service]:
    """MLflow's server with authentication, files behind it."""
    folder = tmp_path_factory.mktemp("mlflow")
    shutil.copy(empty_database, folder)
    with mlflow_server(folder, address_in(folder), str(folder / "files")) as service:
        yield service


@pytest.fixture
def known(server: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address, with the right user and password in the environment."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.environment["MLFLOW_TRACKING_URI"]


@pytest.fixture(scope="module")
def served(
    server: Service, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """A study that was logged to the server, and its store."""
    store = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        address = server.environment["MLFLOW_TRACKING_URI"]
        check_tracking(address, "served")
        return log_study("served", Store(store), address, FEW), store


@pytest.mark.server
def test_a_server_keeps_runs_and_files(served: tuple[dict[str, Any], Path], known: str) -> None:
    document, store = served
    check_tracking(known, "served")
    assert_whole(logged(known, "served"), FEW)
    client = connect(known)
    assert client.get_experiment_by_name("served").artifact_location.startswith("mlflow-artifacts:")
    (parent,) = document["parents"].values()
    assert "results/summary.csv" in [file.path for file in client.list_artifacts(parent, "results")]
    assert {path.name for path in store.iterdir()} == {"artifacts", MARKER, "scratch"}, (
        "nothing of MLflow is here"
    )


@pytest.mark.parametrize("user", [None, ("papa", "wrong"), ("nobody", "wrong")])
@pytest.mark.server
def test_wrong_credentials(
    known: str, user: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in enumerate(("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")):
        monkeypatch.delenv(name)
        if user:
            monkeypatch.setenv(name, user[place])
    with pytest.raises(
        TrackingError,
        match=r"refused the user or its password \(HTTP 401\): set MLFLOW_TRACKING_USER",
    ):
        check_tracking(known, "any")


def administer(endpoint: str, body: dict[str, str]) -> None:
    """Ask the server whose address, user and password are in the environment."""
    address, user, password = (
        os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("URI", "USERNAME", "PASSWORD")
    )
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}",
    }
    request = urllib.request.Request(
        f"{address}/api/{endpoint}", json.dumps(body).encode(), headers
    )
    urllib.request.urlopen(request).close()


@pytest.mark.server
def test_a_study_that_the_user_may_only_read(
    served: tuple[dict[str, Any], Path], known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = served[0]["experiment_id"]
    password = "a long password"
    administer("2.0/mlflow/users/create", {"username": "reader", "password": password})
    right = {"resource_type": "experiment", "resource_id": experiment, "permission": "READ"}
    administer("3.0/mlflow/users/permissions/grant", {"username": "reader", **right})
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    with pytest.raises(TrackingError, match="HTTP 403"):
        check_tracking(known, "served")
    check_tracking(known, "a new one")


def test_a_password_in_the_address_is_never_shown() -> None:
    with pytest.raises(TransientError) as error:
        check_tracking("http://me:secret@127.0.0.1:9", "any")
    assert "secret" not in str(error.value)
    assert "http://me:***@127.0.0.1:9" in str(error.value)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (
            "http://127.0.0.1:9",
            "http://127.0.0.1:9 cannot be reached: start it, or set MLFLOW_TRACKING_URI",
        ),
        ("http://no-such-host.invalid:5000", "cannot be reached"),
        ("htp://127.0.0.1:5000", "htp://127.0.0.1:5000 must be sqlite:///FILE or http"),
        (
            "postgresql://me:secret@127.0.0.1/mlflow",
            r"postgresql://me:\*\*\*@127.0.0.1/mlflow must be",
        ),
        ("/some/mlruns", "/some/mlruns must be"),
        ("sqlite:///", "sqlite:/// must be"),
        (
            "sqlite:////proc/mlflow.db",
            r"MLflow's database /proc/mlflow.db cannot be made \(No such file",
        ),
    ],
)
def test_an_address_where_no_mlflow_is(address: str, told: str) -> None:
    with pytest.raises(PapaError, match=told) as error:
        check_tracking(address, "any")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.server
def test_a_server_that_never_answers_and_one_that_is_no_mlflow(others: tuple[str, str]) -> None:
    silent, other = others
    with pytest.raises(TransientError, match=f"{silent} cannot be reached"):
        check_tracking(silent, "any")
    with pytest.raises(TrackingError, match=f"{other} cannot be used: API request"):
        check_tracking(other, "any")


@pytest.fixture
def others() -> Iterator[tuple[str, str]]:
    """Addresses of a socket that never answers and of a web server that is no MLflow."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=os.devnull)
        )
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{mute.getsockname()[1]}", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text(
        "this is not a database, whatever its name says, and it is long enough\n" * 20
    )
    with pytest.raises(
        TrackingError, match=r"mlflow.db cannot be used \(file is not a database\): move it away"
    ):
        check_tracking(address_in(tmp_path), "any")


def test_a_second_database_is_as_mlflow_makes_it_and_knows_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))
    found = []
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        client = connect(f"sqlite:///{tmp_path / place / 'mlflow.db'}")
        (default,) = client.search_experiments()
        assert (default.experiment_id, default.artifact_location) == (
            "0",
            str(tmp_path / place / "mlruns" / "0"),
        )
        assert client.create_experiment("study") == "1"
        with closing(sqlite3.connect(tmp_path / place / "mlflow.db")) as database:
            found.append(
                sorted(map(str, database.execute("SELECT type, name, sql FROM sqlite_master")))
            )
    assert found[0] == found[1]
    assert len(found[0]) > 20
    assert [path.parent.name for path in (tmp_path / "cache").rglob("*.db")] == ["mlflow"]


@pytest.mark.usefixtures("mlflow_database")
def test_a_database_of_another_version(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    versions = ScriptDirectory(Path(mlflow.__file__).parent / "store" / "db_migrations")
    first, last = versions.get_base(), versions.get_current_head()
    with create_engine(address).begin() as connection:
        MigrationContext.configure(connection).stamp(versions, first)
    with pytest.raises(TrackingError, match=f"found version {first}, but expected {last}") as error:
        check_tracking(address, "any")
    assert len(str(error.value).splitlines()) == 1
