"""What of a finished study MLflow holds: its runs, and its results, read back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papa.storage.artifacts import sha256_of_file, verify
from tasks.links import RESULTS
from tasks.mlflow import TrackingError, connect, database_of, tracking_errors, without_password
from tasks.runs import PARENT
from tasks.track import LOGGED, RESULTS_SHA256, RUNS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

_DEFAULT = "Default"
"""The experiment that every MLflow has."""


def logged_runs(folder: Path) -> dict[str, Any]:
    """The runs of a finished study, as ``runs.json`` of its artifact holds them.

    Raises:
        ArtifactError: the artifact is damaged.
    """
    verify(folder, RUNS)
    document: dict[str, Any] = json.loads((folder / RUNS).read_text())
    return document


def logged_results(address: str, studies: list[str]) -> dict[str, Any]:
    """The results of studies as they were logged last; nothing but MLflow is asked.

    Args:
        address: MLflow's tracking URI.

    Returns:
        A pandas frame a study, with the columns of ``results.parquet``.

    Raises:
        TrackingError: a study is not there or has no results, or MLflow refuses.
        TransientError: the server cannot be reached.
    """
    database = database_of(address)
    if database is not None and not database.is_file():
        raise TrackingError(
            f"there is no MLflow database {database}: run a study first, or set MLFLOW_TRACKING_URI"
        )
    with tracking_errors(address):
        client = connect(address)
        return {name: _results(client, _experiment(client, name, address)) for name in studies}


def _experiment(client: MlflowClient, name: str, address: str) -> Experiment:
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "active":
        return found
    known = sorted(
        experiment.name for experiment in client.search_experiments() if experiment.name != _DEFAULT
    )
    raise TrackingError(
        f"MLflow at {without_password(address)} knows no study '{name}': "
        + (f"it has {', '.join(known)}" if known else "it has none yet, so run one first")
    )


def _results(client: MlflowClient, experiment: Experiment) -> Any:
    """The table that the last logging attached to each of its parent runs."""
    import pandas

    # A parent that runs again keeps the results that it got before.
    parents = client.search_runs(
        [experiment.experiment_id], f"tags.`{PARENT}` IS NULL", max_results=1000
    )
    newest, file = max(parents, key=_logged_at, default=None), f"{RESULTS}/results.parquet"
    files = (
        client.list_artifacts(newest.info.run_id, RESULTS) if newest and _logged_at(newest) else []
    )
    if newest is None or file not in {file.path for file in files if not file.is_dir}:
        raise TrackingError(
            f"the MLflow experiment '{experiment.name}' holds no finished study: run it to its end"
        )
    expected = newest.data.tags.get(RESULTS_SHA256)
    if expected is None:
        raise TrackingError(
            f"the study '{experiment.name}' in MLflow was logged by an older version of PAPA: "
            "run it again with 'papa run'"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(newest.info.run_id, file, folder))
        found = sha256_of_file(path)
        if found != expected:
            raise TrackingError(
                f"{file} of run {newest.info.run_id} in MLflow is not what study "
                f"'{experiment.name}' logged (expected SHA-256 {expected[:12]}, found "
                f"{found[:12]}): put studies/{experiment.name}/results.parquet of its store there"
            )
        return pandas.read_parquet(path)


def _logged_at(run: Run) -> int:
    """When a parent run got its results, in ms; 0 where it has none, by its end in old runs."""
    ended = run.info.end_time if run.info.status == "FINISHED" else 0
    return int(run.data.tags.get(LOGGED, ended))
