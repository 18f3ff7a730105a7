"""Logging to MLflow: once, whole, by several processes, and through a server."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pandas
import pytest
from sqlalchemy import Engine, event

from papa.errors import PapaError, TransientError
from papa.reporting.summary import summarise
from tasks.mlflow_client import TrackingError, check_tracking, connect
from tasks.store import MARKER, Store
from tasks.track import logged_results, run_links
from tests.flows.processes import PATIENCE_SECONDS
from tests.integration.services import Service, mlflow_server
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS, RESULTS, ended_well, log_study, logged, logging_process

FEW = results(models=MODELS[:1], fractions=(1.0, 0.0), seeds=(0,))


def address_in(store: Path) -> str:
    return f"sqlite:///{store / 'mlflow.db'}"


def assert_whole(runs: pandas.DataFrame, frame: pandas.DataFrame = RESULTS) -> None:
    """Every run of the study once, finished, with its parameters and metrics."""
    parents, cells = runs[runs["parent"].isna()], runs[runs["parent"].notna()]
    assert len(parents) == frame["model"].nunique()
    assert len(cells) == len(frame)
    assert runs["key"].is_unique
    assert set(runs["status"]) == {"FINISHED"}
    assert set(cells["parent"]) == set(parents["id"])
    for run in cells.to_dict("records"):
        assert {"model", "task", "fraction", "seed"} <= set(run["params"])
        assert {"score", "fraction", "share_of_heads", "relative_drop"} <= set(run["metrics"])
        assert run["metrics"]["fraction"] == float(run["params"]["fraction"])
    for run in parents.to_dict("records"):
        assert run["params"]["model"] in MODELS
        assert {"score/average/lambda", "fraction", "baseline/word_embeddings"} <= set(run["metrics"])


@pytest.mark.server
def test_two_first_studies_at_once_on_a_new_database(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    ended_well([logging_process(name, tmp_path, address) for name in ("one", "two")])
    for name in ("one", "two"):
        assert_whole(logged(address, name))
    assert [path.name for path in tmp_path.glob(".mlflow*")] == []


@pytest.mark.server
def test_one_study_logged_twice_at_once_is_there_once(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    connect(address)
    ended_well([logging_process("same", tmp_path / str(number), address) for number in range(2)])
    assert_whole(logged(address, "same"))


@pytest.mark.parametrize("table", ["params", "metrics"])
@pytest.mark.server
def test_who_is_overtaken_while_writing_finds_it_there(tmp_path: Path, table: str) -> None:
    """Another process logs the same study between MLflow's look at what a run has and its insertion."""
    address, overtaken = address_in(tmp_path), []
    connect(address)

    def overtake(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not overtaken and statement.startswith(f"INSERT INTO {table} "):
            overtaken.append(True)
            ended_well([logging_process("same", tmp_path / "other", address)])

    event.listen(Engine, "before_cursor_execute", overtake)
    try:
        log_study("same", Store(tmp_path), address)
    finally:
        event.remove(Engine, "before_cursor_execute", overtake)
    assert overtaken
    assert_whole(logged(address, "same"))


def test_a_drop_is_that_of_its_own_seed_and_their_mean_is_the_studys(tmp_path: Path) -> None:
    frame = results(models=MODELS[:1], fractions=(1.0, 0.0), seeds=(0, 1))
    frame["score"] = [0.9, 0.7, 0.8, 0.5]
    log_study("paired", Store(tmp_path), address_in(tmp_path), frame)
    runs = logged(address_in(tmp_path), "paired")
    drops = {
        int(run["params"]["seed"]): run["metrics"]["relative_drop"]
        for run in runs[runs["parent"].notna()].to_dict("records")
        if run["params"]["fraction"] == "0.0"
    }
    # Against the mean of the originals, 0.8, it was 0 and 0.375.
    assert drops == pytest.approx({0: 0.1 / 0.8, 1: 0.2 / 0.8})
    assert sum(drops.values()) / 2 == pytest.approx(summarise(frame).iloc[-1]["relative_drop"])


def test_runs_say_what_their_scores_are_worth(tmp_path: Path) -> None:
    frame = results(models=MODELS, fractions=(1.0, 0.0), seeds=(0, 1, 2))
    second = frame["model"] == MODELS[1]
    frame.loc[second, "word_embeddings"] = frame.loc[second, "score"].max()
    log_study("worth", Store(tmp_path), address_in(tmp_path), frame)
    runs = logged(address_in(tmp_path), "worth")
    for model, expected in zip(MODELS, ("yes", "no"), strict=True):
        own = runs[[params["model"] == model for params in runs["params"]]]
        assert {tags["papa.beats_baseline"] for tags in own["tags"]} == {expected}
        (parent,) = own[own["parent"].isna()]["metrics"]
        assert parent["baseline/always_one_answer"] == 0.5
        assert parent["baseline/word_embeddings"] == pytest.approx(
            frame[frame["model"] == model]["word_embeddings"].mean()
        )


def test_logging_again_adds_nothing(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    first = log_study("again", Store(tmp_path), address)
    before = rows(tmp_path)
    assert log_study("again", Store(tmp_path), address) == first
    assert rows(tmp_path) == before
    changed = RESULTS.assign(score=RESULTS["score"] + 0.01)
    log_study("again", Store(tmp_path / "other"), address, changed)
    assert rows(tmp_path) != before, "other scores are logged"


def rows(store: Path) -> dict[str, int]:
    """How much the database holds."""
    with sqlite3.connect(store / "mlflow.db") as database:
        return {
            table: database.execute(f"select count(*) from {table}").fetchone()[0]
            for table in ("runs", "params", "metrics", "tags", "experiments")
        }


# Writes: the parent created, its parameters, its curves; then three a cell: created, logged, ended; the parent ended.
@pytest.mark.parametrize(("last", "runs"), [(2, 1), (5, 2), (6, 2), (19, 6)])
@pytest.mark.server
def test_what_a_killed_process_left_is_finished(tmp_path: Path, last: int, runs: int) -> None:
    address = address_in(tmp_path)
    connect(address)
    process = logging_process("killed", tmp_path, address, last)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGKILL, said
    assert rows(tmp_path)["runs"] == runs
    log_study("killed", Store(tmp_path), address)
    assert_whole(logged(address, "killed"))


@pytest.mark.server
def test_a_database_whose_making_was_killed_is_not_there(tmp_path: Path) -> None:
    killed_before_it_is_linked = (
        "import os, signal, sys\n"
        "from tasks.mlflow_client import connect\n"
        "os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "connect(sys.argv[1])"
    )
    command = [sys.executable, "-c", killed_before_it_is_linked, address_in(tmp_path)]
    assert subprocess.run(command, timeout=PATIENCE_SECONDS, check=False).returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".mlflow.db.*/whole"))
    assert not (tmp_path / "mlflow.db").exists()
    log_study("killed", Store(tmp_path), address_in(tmp_path))
    assert_whole(logged(address_in(tmp_path), "killed"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """MLflow's server with authentication, files behind it."""
    folder = tmp_path_factory.mktemp("mlflow")
    with mlflow_server(folder, f"sqlite:///{folder / 'server.db'}", str(folder / "files")) as service:
        yield service


@pytest.fixture
def known(server: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address, with the right user and password in the environment."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.environment["MLFLOW_TRACKING_URI"]


@pytest.fixture(scope="module")
def served(server: Service, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
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
    assert {path.name for path in store.iterdir()} == {"artifacts", MARKER, "scratch"}, "nothing of MLflow is here"
    pandas.testing.assert_frame_equal(logged_results(known, ["served"])["served"], FEW)


@pytest.mark.parametrize("user", [None, ("papa", "wrong"), ("nobody", "wrong")])
@pytest.mark.server
def test_wrong_credentials(known: str, user: tuple[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in enumerate(("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")):
        monkeypatch.delenv(name)
        if user:
            monkeypatch.setenv(name, user[place])
    with pytest.raises(TrackingError, match=r"refused the user or its password \(HTTP 401\): set MLFLOW_TRACKING_USER"):
        check_tracking(known, "any")


def administer(endpoint: str, body: dict[str, str]) -> None:
    """Ask the server whose address, user and password are in the environment."""
    address, user, password = (os.environ[f"MLFLOW_TRACKING_{name}"] for name in ("URI", "USERNAME", "PASSWORD"))
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}",
    }
    request = urllib.request.Request(f"{address}/api/{endpoint}", json.dumps(body).encode(), headers)
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
    assert len(logged_results(known, ["served"])["served"]) == len(FEW)
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
        ("http://127.0.0.1:9", "http://127.0.0.1:9 cannot be reached: start it, or set MLFLOW_TRACKING_URI"),
        ("http://no-such-host.invalid:5000", "cannot be reached"),
        ("htp://127.0.0.1:5000", "htp://127.0.0.1:5000 must be sqlite:///FILE or http"),
        ("postgresql://me:secret@127.0.0.1/mlflow", r"postgresql://me:\*\*\*@127.0.0.1/mlflow must be"),
        ("/some/mlruns", "/some/mlruns must be"),
        ("sqlite:///", "sqlite:/// must be"),
        ("sqlite:////proc/mlflow.db", r"MLflow's database /proc/mlflow.db cannot be made \(No such file"),
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
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=os.devnull))
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{mute.getsockname()[1]}", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is not a database, whatever its name says, and it is long enough\n" * 20)
    with pytest.raises(TrackingError, match=r"mlflow.db cannot be used \(file is not a database\): move it away"):
        check_tracking(address_in(tmp_path), "any")


@pytest.mark.server
def test_a_database_of_another_version(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    code = f"from tasks.mlflow_client import connect; connect({address!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        (head,) = database.execute("select version_num from alembic_version").fetchone()
        database.execute("update alembic_version set version_num = 'a1b2c3'")
    with pytest.raises(TrackingError, match="found version a1b2c3, but expected " + head) as error:
        check_tracking(address, "any")
    assert len(str(error.value).splitlines()) == 1


def test_links_lead_to_the_charts_and_the_runs() -> None:
    document = {
        "address": "http://me:***@host:5000/",
        "experiment": "s",
        "experiment_id": "7",
        "parents": {"m · t": "r"},
    }
    experiment = "http://host:5000/#/experiments/7/runs"
    assert run_links(document) == {
        "s": f"{experiment}?workflowType=machine_learning&compareRunsMode=CHART"
        "&searchFilter=tags.%60mlflow.parentRunId%60%20IS%20NULL",
        "m · t": f"{experiment}/r?workflowType=machine_learning",
    }
    assert run_links({**document, "address": "sqlite:////store/mlflow.db"}) == {}
