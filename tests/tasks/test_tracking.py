"""What MLflow shows of a study: once, whole, also where it was interrupted or two runs log it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pytest
import requests

from papa.errors import PapaError, TransientError
from papa.scores.summary import LINE, summarise
from papa.storage.store import Store
from tasks.mlflow import Tracking, connect
from tests.tasks.tracked import RESULTS, address_in, log_study, logged, make, steps_of


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database as its first use leaves it."""
    folder = tmp_path_factory.mktemp("mlflow")
    connect(address_in(folder))
    return folder / "mlflow.db"


@pytest.fixture
def store(database: Path, tmp_path: Path) -> Store:
    """With a database in which nothing is logged yet."""
    shutil.copy(database, tmp_path)
    return Store(tmp_path)


def assert_whole(store: Store, name: str) -> pandas.DataFrame:
    """Every run of the study once, finished, with its parameters and metrics."""
    runs = logged(address_in(store.root), name)
    cells, curves = (runs[runs["role"] == role] for role in ("cell", "curve"))
    assert runs["key"].is_unique
    assert set(runs["status"]) == {"FINISHED"}
    parent = runs[runs["role"] == "study"].iloc[0]
    assert (len(cells), len(curves)) == (len(RESULTS), len(RESULTS.groupby(LINE)))
    assert set(cells["parent"]) == set(curves["parent"]) == {parent["id"]}
    names = {"score", "accuracy", "share_of_heads", "seconds"}
    assert all(metrics.keys() >= names for metrics in cells["metrics"])
    assert cells["metrics"].str["score"].sum() == pytest.approx(RESULTS["score"].sum())
    return runs


def test_a_study_its_cells_and_its_curves(store: Store) -> None:
    assert log_study("whole", store) == []
    runs = assert_whole(store, "whole")
    client, summary = connect(address_in(store.root)), summarise(RESULTS)
    parent = runs[runs["role"] == "study"].iloc[0]
    for row in summary[summary["fraction"].isin([0, 1])].to_dict("records"):
        end = "original" if row["fraction"] else f"all_heads_constant/{row['constants']}"
        name = f"{row['encoder']}/{row['task']}/accuracy/{end}"
        found = [parent["metrics"].get(f"{name}{what}") for what in ("", "_low", "_high")]
        assert found == pytest.approx([row["mean"], row["low"], row["high"]])
    assert '"kind":"embedded"' in parent["tags"]["papa.data.reviews"]
    losses = [name for name in parent["metrics"] if name.endswith("/train_loss")]
    assert any(name.startswith("rank/") for name in losses)
    for run in runs[runs["role"] == "cell"].to_dict("records"):
        (loss,) = client.get_metric_history(run["id"], "train_loss")
        assert (loss.step, loss.value) == (1, 0.5 + int(run["params"]["seed"]))
        assert loss.timestamp > 0
    curve = runs[runs["role"] == "curve"].iloc[0]
    line = summary
    for name in LINE:
        line = line[line[name] == curve["params"][name]]
    for metric, column in {"score": "mean", "score_low": "low", "score_high": "high"}.items():
        points = {one.step: one.value for one in client.get_metric_history(curve["id"], metric)}
        wanted = {round(10_000 * row["fraction"]): row[column] for _, row in line.iterrows()}
        assert points == pytest.approx(wanted)


def test_logging_again_adds_nothing_and_another_result_is_logged(store: Store) -> None:
    log_study("again", store)
    before = held(store)
    log_study("again", store)
    assert held(store) == before
    shutil.rmtree(store.artifacts)
    changed = RESULTS.assign(word_embeddings=RESULTS["word_embeddings"] + 0.01)
    log_study("again", store, changed)
    assert held(store) != before, "as after 'papa describe', say"
    assert_whole(store, "again")


def held(store: Store) -> dict[Any, Any]:
    """Everything that MLflow tells of a study's runs."""
    history = connect(address_in(store.root)).get_metric_history
    runs = logged(address_in(store.root), "again").set_index("id")
    points = [
        [vars(point) for name in metrics for point in history(run, name)]
        for run, metrics in runs["metrics"].items()
    ]
    return runs.assign(points=points).to_dict("index")


def test_where_mlflow_fails_meanwhile_the_rest_is_logged_at_the_end(store: Store) -> None:
    inputs, steps = steps_of("later")
    make(steps, store)
    failing: list[str] = []

    class Unreachable:
        def __getattr__(self, name: str) -> Any:
            raise requests.ConnectionError("gone")

    with Tracking(store, inputs.study, steps, failing.append) as tracking:
        client, tracking.client = tracking.client, Unreachable()  # type: ignore[assignment]
        for step in steps.steps:
            if step.stage == "probe":
                tracking.step(step)
        tracking.client = client
        tracking.results(steps.steps[-1].reference(store))
    (sentence,) = failing
    assert sentence.startswith("MLflow gets the rest when the study is over: ")
    assert_whole(store, "later")


@pytest.mark.server
def test_two_processes_make_a_database_once(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    code = "from tasks.mlflow import connect; connect({!r}).create_experiment({!r})"
    making = [
        subprocess.Popen([sys.executable, "-c", code.format(address, name)])
        for name in ("one", "two")
    ]
    assert [process.wait() for process in making] == [0, 0]
    names = {one.name for one in connect(address).search_experiments()}
    assert names >= {"one", "two"}
    assert not list(tmp_path.glob(".mlflow*"))


REFUSED: list[tuple[str, type[Exception], str]] = [
    ("http://me:secret@127.0.0.1:9", TransientError, r"http://\*\*\*@127\.0\.0\.1:9 cannot be"),
    ("sqlite:////proc/mlflow.db", PapaError, "/proc/mlflow.db cannot be used"),
    ("sqlite:///{folder}/text.db", PapaError, "file is not a database"),
    ("sqlite:///{folder}/mlflow.db", TransientError, "database is locked"),
]


def test_an_mlflow_that_cannot_be_used_is_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.root / "text.db").write_text("this is not a database\n" * 40)
    inputs, steps = steps_of("none")
    with closing(sqlite3.connect(store.mlflow_database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for address, error, sentence in REFUSED:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(folder=store.root))
            tracking = Tracking(store, inputs.study, steps, print)
            with pytest.raises(error, match=sentence) as told, tracking:
                pass
            assert len(str(told.value).splitlines()) == 1
            assert "secret" not in str(told.value)
