"""A study's results, read back from MLflow."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

from tasks.mlflow_client import TrackingError, connect, database_of, tracking_errors, without_password
from tasks.mlflow_groups import RESULTS
from tasks.mlflow_runs import PARENT

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

_DEFAULT = "Default"
"""The experiment that every MLflow has."""


def logged_results(address: str, studies: list[str]) -> dict[str, Any]:
    """The results of studies as they were logged last; nothing but MLflow is asked.

    Args:
        address: MLflow's tracking URI.
        studies: their names.

    Returns:
        A pandas frame a study, with the columns of ``results.parquet``.

    Raises:
        TrackingError: a study is not there or has no results, or MLflow refuses.
        TransientError: the server cannot be reached.
    """
    database = database_of(address)
    if database is not None and not database.is_file():
        raise TrackingError(f"there is no MLflow database {database}: run a study first, or set MLFLOW_TRACKING_URI")
    client = connect(address)
    with tracking_errors(address):
        return {name: _results(client, _experiment(client, name, address)) for name in studies}


def _experiment(client: MlflowClient, name: str, address: str) -> Experiment:
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "active":
        return found
    known = sorted(one.name for one in client.search_experiments() if one.name != _DEFAULT)
    raise TrackingError(
        f"MLflow at {without_password(address)} knows no study '{name}': "
        + (f"it has {', '.join(known)}" if known else "it has none yet, so run one first")
    )


def _results(client: MlflowClient, experiment: Experiment) -> Any:
    """The table that the last logging attached to each of its parent runs."""
    import pandas

    newest = client.search_runs(
        [experiment.experiment_id],
        f"tags.`{PARENT}` IS NULL AND attributes.status = 'FINISHED'",
        order_by=["attributes.end_time DESC"],
        max_results=1,
    )
    file = f"{RESULTS}/results.parquet"
    if not newest or file not in {one.path for one in client.list_artifacts(newest[0].info.run_id, RESULTS)}:
        raise TrackingError(f"the MLflow experiment '{experiment.name}' holds no finished study: run it to its end")
    with tempfile.TemporaryDirectory() as folder:
        return pandas.read_parquet(client.download_artifacts(newest[0].info.run_id, file, folder))
