"""A finished study, logged as its tasks do; and what MLflow then knows."""

from pathlib import Path

import pandas
import pytest

from papa.spec import StudySpec
from papa.spec.columns import LINE
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.tasks.inputs import resolve_inputs
from papa.tasks.manifest import open_study
from papa.tasks.mlflow import Tracking
from papa.tasks.mlflow_address import tracking_folder
from papa.tasks.pipeline import Pipeline, build_pipeline


def steps_of(file: str, *changes: str) -> tuple[StudySpec, Pipeline]:
    inputs = resolve_inputs(load_study(Path(file), changes)).inputs()
    return inputs.study, build_pipeline(inputs)


def log_study(file: str, store: Store) -> list[str]:
    """Log a study that is finished in a store; returns what was said."""
    study, steps = steps_of(file)
    warnings: list[str] = []
    with Tracking(store, study, steps, warnings.append) as tracking:
        for step in steps.steps[:-1]:
            tracking.log_step(step)
        tracking.log_results(steps.steps[-1].reference(store))
    return warnings


def address_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


def own_address() -> str:
    """Where runs lie of tests that name no MLflow."""
    return address_in(tracking_folder())


def logged_in(address: str, name: str) -> pandas.DataFrame:
    """The runs of an experiment, also of several stores."""
    from mlflow import MlflowClient

    client = MlflowClient(address)
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    return pandas.DataFrame(
        {
            "id": run.info.run_id,
            "key": run.data.tags.get("papa.key"),
            "store": run.data.tags.get("papa.store"),
            "parent": run.data.tags.get("mlflow.parentRunId"),
            "role": run.data.tags["papa.role"],
            "status": run.info.status,
            "params": run.data.params,
            "tags": run.data.tags,
            "metrics": run.data.metrics,
        }
        for run in runs
    )


def logged(store: Path, name: str) -> pandas.DataFrame:
    """The runs of a store's study in the tests' own database."""
    runs = logged_in(own_address(), name)
    return runs[runs["store"] == str(store)]


def assert_whole(store: Store, runs: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Every run of the study once, finished, with its parameters and metrics."""
    runs = logged(store.root, "small") if runs is None else runs
    results = open_study(store, "small").results
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
