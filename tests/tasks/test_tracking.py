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
from papa.scores.summary import LINE, read_table
from papa.storage.artifacts import published, read_metadata, remove, verified
from papa.storage.store import Store
from papa.study.manifest import open_study
from tasks.mlflow import Tracking, connect
from tests.finished import finish_study
from tests.flows.conftest import TINY, write_study
from tests.tasks.tracked import address_in, log_study, logged, steps_of

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def finished(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The file of a finished study, and its store with an MLflow database of nothing."""
    folder = tmp_path_factory.mktemp("tracked")
    parts = {"constants": ["average", "zeros"], "fractions": [1, 0.5, 0], "seeds": [0, 1]}
    file = write_study(folder, TINY | parts | {"encoders": [shallow]})
    finish_study(file, folder / "store")
    connect(address_in(folder / "store"))
    return file, folder / "store"


@pytest.fixture
def study(finished: tuple[str, Path]) -> str:
    return finished[0]


@pytest.fixture
def store(finished: tuple[str, Path], tmp_path: Path) -> Store:
    return Store(shutil.copytree(finished[1], tmp_path / "store"))


def assert_whole(store: Store) -> pandas.DataFrame:
    """Every run of the study once, finished, with its parameters and metrics."""
    runs, results = logged(address_in(store.root), "small"), open_study(store, "small").results
    cells, curves = (runs[runs["role"] == role] for role in ("cell", "curve"))
    assert runs["key"].is_unique
    assert set(runs["status"]) == {"FINISHED"}
    parent = runs[runs["role"] == "study"].iloc[0]
    assert (len(cells), len(curves)) == (len(results), len(results.groupby(LINE)))
    assert set(cells["parent"]) == set(curves["parent"]) == {parent["id"]}
    names = {"score", "accuracy", "share_of_heads", "seconds"}
    assert all(metrics.keys() >= names for metrics in cells["metrics"])
    assert cells["metrics"].str["score"].sum() == pytest.approx(results["score"].sum())
    return runs


def test_a_study_its_cells_and_its_curves(study: str, store: Store) -> None:
    assert log_study(study, store) == []
    runs = assert_whole(store)
    client, summary = connect(address_in(store.root)), open_study(store, "small").summary
    parent = runs[runs["role"] == "study"].iloc[0]
    for row in summary[summary["fraction"].isin([0, 1])].to_dict("records"):
        end = "original" if row["fraction"] else f"all_heads_constant/{row['constants']}"
        name = f"{row['encoder']}/{row['task']}/accuracy/{end}"
        found = [parent["metrics"].get(f"{name}{what}") for what in ("", "_low", "_high")]
        assert found == pytest.approx([row["mean"], row["low"], row["high"]])
    assert "torch" in parent["tags"]["papa.versions"]
    assert '"kind":"embedded"' in parent["tags"]["papa.data.reviews"]
    losses = [name for name in parent["metrics"] if name.endswith("/train_loss")]
    assert any(name.startswith("rank/") for name in losses)
    for folder in ("constants/average", "lambda/seed-0"):
        assert client.list_artifacts(parent["id"], f"all-MiniLM-L6-v2/reviews/{folder}")
    files = {file.path for file in client.list_artifacts(parent["id"], "results")}
    assert {"results/summary.csv", "results/report.html"} <= files
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
        wanted = {round(100 * row["fraction"] + 0.49): row[column] for _, row in line.iterrows()}
        assert points == pytest.approx(wanted)


def test_logging_again_adds_nothing_and_another_result_is_logged(study: str, store: Store) -> None:
    log_study(study, store)
    before = held(store)
    log_study(study, store)
    assert held(store) == before
    step = steps_of(study)[1].steps[-1]
    made = read_metadata(step.folder(store))
    summary = read_table(verified(step.reference(store)) / "summary.csv")
    remove(step.folder(store))
    with published(step.folder(store), made) as scratch:
        lost = {("average", 0): 0.25, ("zeros", 0): 0.5, ("average", 0.5): 0.125}
        of = zip(summary["constants"], summary["fraction"], strict=True)
        drops = [lost.get(one, 0) for one in of]
        summary.assign(relative_drop=drops).to_csv(scratch / "summary.csv", index=False)
    log_study(study, store)
    assert held(store) != before
    runs = logged(address_in(store.root), "small")
    (parent,) = runs[runs["role"] == "study"]["metrics"]
    assert parent["relative_drop"] == 0.25, "of the first constants, at the smallest fraction"


def held(store: Store) -> dict[Any, Any]:
    history = connect(address_in(store.root)).get_metric_history
    runs = logged(address_in(store.root), "small").set_index("id")
    points = [
        [vars(point) for name in metrics for point in history(run, name)]
        for run, metrics in runs["metrics"].items()
    ]
    return runs.assign(points=points).to_dict("index")


def test_where_mlflow_fails_meanwhile_the_rest_is_logged_at_the_end(
    study: str, store: Store
) -> None:
    spec, steps = steps_of(study)
    failing: list[str] = []

    class Unreachable:
        def __getattr__(self, name: str) -> Any:
            raise requests.ConnectionError("gone")

    with Tracking(store, spec, steps, failing.append) as tracking:
        client, tracking.client = tracking.client, Unreachable()  # type: ignore[assignment]
        for step in (step for step in steps.steps if step.stage == "probe"):
            tracking.step(step)
        tracking.client = client
        tracking.results(steps.steps[-1].reference(store))
    (sentence,) = failing
    assert sentence.startswith("MLflow gets the rest when the study is over: ")
    assert_whole(store)


def test_two_processes_make_a_database_once(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    code = "from tasks.mlflow import connect; connect({!r}).create_experiment({!r})"
    made = {"one", "two"}
    commands = [[sys.executable, "-c", code.format(address, name)] for name in made]
    assert not any(process.wait() for process in [*map(subprocess.Popen, commands)])
    assert {one.name for one in connect(address).search_experiments()} >= made
    assert not list(tmp_path.glob(".mlflow*"))


REFUSED: list[tuple[str, type[Exception], str]] = [
    ("http://me:secret@127.0.0.1:9", TransientError, r"http://\*\*\*@127\.0\.0\.1:9 cannot be"),
    ("sqlite:////proc/mlflow.db", PapaError, "/proc/mlflow.db cannot be used"),
    ("sqlite:///{folder}/text.db", PapaError, "file is not a database"),
    ("sqlite:///{folder}/mlflow.db", TransientError, "database is locked"),
]


def test_an_mlflow_that_cannot_be_used_is_one_sentence(
    study: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.root / "text.db").write_text("this is not a database\n" * 40)
    spec, steps = steps_of(study)
    with closing(sqlite3.connect(store.root / "mlflow.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        for address, error, sentence in REFUSED:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(folder=store.root))
            tracking = Tracking(store, spec, steps, print)
            with pytest.raises(error, match=sentence) as told, tracking:
                pass
            assert len(str(told.value).splitlines()) == 1
            assert "secret" not in str(told.value)
