"""What MLflow shows of a study: once, whole, also where it was interrupted or two runs log it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from papa.errors import PapaError, TransientError
from papa.scores.summary import read_table
from papa.spec.columns import LINE
from papa.storage.artifacts import published, read_metadata, remove, verified
from papa.storage.store import Store
from papa.tasks.manifest import open_study
from papa.tasks.mlflow import Tracking
from papa.tasks.mlflow_address import check_tracking, connect, tracking_folder
from tests.finished import finish_study
from tests.flows.conftest import TINY, write_study
from tests.flows.processes import wait_until
from tests.tasks.tracked import (
    address_in,
    assert_whole,
    log_study,
    logged,
    logged_in,
    own_address,
    steps_of,
)

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def finished(shallow: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The file of a finished study, and its store."""
    folder = tmp_path_factory.mktemp("tracked")
    settings = {"substitutes": ["average", "zeros"], "keep": [1, 0.5, 0], "probe_seeds": [0, 1]}
    file = write_study(folder, TINY | settings | {"encoders": [shallow]})
    finish_study(file, folder / "store")
    return file, folder / "store"


@pytest.fixture
def study(finished: tuple[str, Path]) -> str:
    return finished[0]


@pytest.fixture
def store(finished: tuple[str, Path], tmp_path: Path) -> Store:
    return Store(shutil.copytree(finished[1], tmp_path / "store"))


def test_a_study_has_runs_of_cells_below_it(study: str, store: Store) -> None:
    assert log_study(study, store) == []
    runs = assert_whole(store)
    mlflow = connect(own_address())
    summary = open_study(store, "small").summary
    parent = runs[runs["role"] == "study"].iloc[0]
    for row in summary[summary["fraction"].isin([0, 1])].to_dict("records"):
        end = "original" if row["fraction"] else f"all_heads_constant/{row['constants']}"
        name = f"{row['encoder']}/{row['task']}/accuracy/{end}"
        values = [parent["metrics"].get(f"{name}{suffix}") for suffix in ("", "_low", "_high")]
        assert values == pytest.approx([row["mean"], row["low"], row["high"]])
    assert "torch" in parent["tags"]["papa.versions"]
    assert '"kind":"embedded"' in parent["tags"]["papa.data.reviews"]
    losses = [name for name in parent["metrics"] if name.endswith("/train_loss")]
    assert any(name.startswith("train_lambda/") for name in losses)
    for folder in ("constants/average", "lambda/seed-0"):
        assert mlflow.list_artifacts(parent["id"], f"all-MiniLM-L6-v2/reviews/{folder}")
    files = {file.path for file in mlflow.list_artifacts(parent["id"], "results")}
    assert {"results/summary.csv", "results/report.html"} <= files
    stored = stored_losses(store)
    for run in runs[runs["role"] == "cell"].to_dict("records"):
        cell = tuple(run["params"][name] for name in (*LINE, "fraction", "seed"))
        ((epoch, loss, ended),) = stored[cell]
        (point,) = mlflow.get_metric_history(run["id"], "train_loss")
        assert (point.step, point.value, point.timestamp) == (epoch, loss, int(1000 * ended))
    curve = runs[runs["role"] == "curve"].iloc[0]
    line = summary
    for name in LINE:
        line = line[line[name] == curve["params"][name]]
    for metric, column in {"score": "mean", "score_low": "low", "score_high": "high"}.items():
        history = mlflow.get_metric_history(curve["id"], metric)
        points = {point.step: point.value for point in history}
        wanted = {round(100 * row["fraction"] + 0.49): row[column] for _, row in line.iterrows()}
        assert points == pytest.approx(wanted)


def stored_losses(store: Store) -> dict[tuple[str, ...], list[tuple[int, float, float]]]:
    """The losses by epoch in the artifacts of cells, by cell and seed."""
    return {
        tuple(map(str, (*cell.line, cell.fraction, seed))): read_metadata(
            f"{store.artifacts}/{probe.artifact}"
        )["train_losses"]
        for cell in open_study(store, "small").manifest.cells
        for probe in cell.probes
        for seed in probe.seeds
    }


def test_logging_again_adds_nothing(study: str, store: Store) -> None:
    log_study(study, store)
    before = metric_histories(store)
    log_study(study, store)
    assert metric_histories(store) == before
    step = steps_of(study)[1].steps[-1]
    metadata = read_metadata(step.folder(store))
    summary = read_table(verified(step.reference(store)) / "summary.csv")
    remove(step.folder(store))
    with published(step.folder(store), metadata) as scratch:
        lost = {("average", 0): 0.25, ("zeros", 0): 0.5, ("average", 0.5): 0.125}
        cells = zip(summary["constants"], summary["fraction"], strict=True)
        drops = [lost.get(cell, 0) for cell in cells]
        summary.assign(relative_drop=drops).to_csv(scratch / "summary.csv", index=False)
    log_study(study, store)
    assert metric_histories(store) != before
    runs = logged(store.root, "small")
    (parent,) = runs[runs["role"] == "study"]["metrics"]
    assert parent["relative_drop"] == 0.25, "of the first constants, at the smallest fraction"


def metric_histories(store: Store) -> dict[str, object]:
    history = connect(own_address()).get_metric_history
    runs = logged(store.root, "small").set_index("id")
    by_run = runs["metrics"].items()
    points = [
        [vars(point) for name in names for point in history(run, name)] for run, names in by_run
    ]
    return runs.assign(points=points).to_dict("index")


def test_equal_studies_of_two_stores_have_runs_of_their_own(study: str, store: Store) -> None:
    copied_store = Store(shutil.copytree(store.root, store.root.with_name("other")))
    log_study(study, store)
    before = metric_histories(store)
    log_study(study, copied_store)
    assert metric_histories(store) == before
    assert_whole(copied_store)


def test_what_a_store_says_of_mlflow_is_not_read(
    study: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database, as PAPA 0.2 had it, has an experiment whose files go elsewhere."""
    outside = tmp_path / "outside"
    planted = connect(address_in(store.root))
    planted.create_experiment("small", outside.as_uri())
    before = (store.root / "mlflow.db").read_bytes()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    log_study(study, store)
    assert not outside.exists()
    assert (store.root / "mlflow.db").read_bytes() == before
    assert_whole(store)


def test_the_database_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before = os.umask(0o007)
    try:
        connect(own_address())
    finally:
        os.umask(before)
    folder = tracking_folder()
    assert folder.is_relative_to(tmp_path / "data")
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700] * 2


def test_what_a_locked_database_lacks_the_next_run_writes(
    study: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address_in(tmp_path))
    spec, steps = steps_of(study)
    warnings: list[str] = []
    with ExitStack() as stack, Tracking(store, spec, steps, warnings.append) as tracking:
        stack.enter_context(locked(tmp_path))
        for step in steps.steps[:-1]:
            tracking.log_step(step)
        wait_until(lambda: warnings, "a write failed")
        tracking.log_results(steps.steps[-1].reference(store))
    assert len(warnings) == 2, "as it failed, and when the study was over"
    assert all(str(tmp_path / "mlflow.db") in sentence for sentence in warnings)
    assert log_study(study, store) == []
    assert_whole(store, logged_in(address_in(tmp_path), "small"))


def test_two_processes_make_a_database_once(tmp_path: Path) -> None:
    address = address_in(tmp_path)
    code = "from papa.tasks.mlflow_address import connect; connect({!r}).create_experiment({!r})"
    names = {"one", "two"}
    commands = [[sys.executable, "-c", code.format(address, name)] for name in names]
    assert not any(process.wait() for process in [*map(subprocess.Popen, commands)])
    assert {experiment.name for experiment in connect(address).search_experiments()} >= names
    assert not list(tmp_path.glob(".mlflow*"))


REFUSED = [
    ("http://me:secret@127.0.0.1:9", TransientError, "http://***@127.0.0.1:9"),
    ("sqlite:////proc/mlflow.db", PapaError, "/proc/mlflow.db"),
    ("sqlite:///{folder}/text.db", PapaError, "{folder}/text.db"),
    ("sqlite:///{folder}/mlflow.db", TransientError, "{folder}/mlflow.db"),
    ("file://{folder}/mlruns", PapaError, "MLFLOW_ALLOW_FILE_STORE"),
]
"""An address, and what the error names: MLflow's own advice where it gives some."""


def locked(folder: Path) -> closing[sqlite3.Connection]:
    """A folder with a file that is no database, and a database that is locked in the block."""
    (folder / "text.db").write_text("this is not a database\n" * 40)
    connect(address_in(folder))
    connection = sqlite3.connect(folder / "mlflow.db")
    connection.execute("BEGIN EXCLUSIVE")
    return closing(connection)


@pytest.mark.parametrize(("address", "error", "expected"), REFUSED)
def test_an_mlflow_that_cannot_be_used_is_refused(
    study: str,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    error: type[Exception],
    expected: str,
) -> None:
    spec, steps = steps_of(study)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(folder=tmp_path))
    tracking = Tracking(store, spec, steps, print)
    with locked(tmp_path), pytest.raises(error) as raised, tracking:
        pass
    assert expected.format(folder=tmp_path) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_check_of_an_address_creates_nothing(tmp_path: Path) -> None:
    check_tracking(address_in(tmp_path / "new"))
    assert not list(tmp_path.iterdir())


def test_a_check_refuses_what_cannot_be_used(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(PapaError, match=f"{tmp_path}/text.db"):
        check_tracking(f"sqlite:///{tmp_path}/text.db")
