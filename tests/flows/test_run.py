"""One small study, end to end and over again: real Prefect, Ray, MLflow and layers of MiniLM."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml

from tasks.mlflow import connect
from tests.finished import finish_study
from tests.flows.conftest import (
    SMALL,
    Finished,
    artifacts,
    environment,
    known,
    papa,
    said,
    stages,
    write_study,
)
from tests.flows.history import FlowRun, own_flow_runs
from tests.tasks.tracked import address_in, logged

pytestmark = pytest.mark.server

COMPUTED = ("tokenise", "average", "rank", "probe", "baseline")
AS_DEPLOYED = """
import sys, yaml
from flows.server import settle_environment, start_server

study, store = sys.argv[1:]
settle_environment()
start_server()()
from prefect.flows import load_flow_from_entrypoint

with open("infra/prefect.yaml") as file:
    deployments = yaml.safe_load(file)["deployments"]
flows = {one["name"]: load_flow_from_entrypoint(one["entrypoint"]) for one in deployments}
for one in deployments:
    flows[one["name"]].validate_parameters(one["parameters"])
print(flows["demo"](study=study, store=store))
"""


def logged_runs(store: Path) -> pandas.DataFrame:
    """The MLflow runs of the store, through MLflow's own client."""
    return logged(address_in(store), "small")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "store"


@pytest.fixture(scope="module")
def small(shallow: str) -> dict[str, Any]:
    return SMALL | {"encoders": [shallow]}


@pytest.fixture(scope="module")
def study(small: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    two = small | {"execution": {"shard_rows": 16, "workers": 2}}
    return known(write_study(tmp_path_factory.mktemp("study"), two))


@pytest.fixture(scope="module")
def first(store: Path, study: str, prefect: dict[str, str]) -> Finished:
    """The study's first run, behind a proxy that is none: what goes to this machine goes through
    no proxy.
    """
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    proxies = dict.fromkeys(names, "http://127.0.0.1:9")
    finished = papa("run", study, "--store", str(store), more=prefect | proxies)
    assert finished.code == 0, finished.err
    return finished


@dataclass(frozen=True)
class Again:
    """A repeated run.

    Attributes:
        finished: what it printed.
        before: the artifacts before it.
        deployed: the same as a deployment.
        run, run_deployed: what Prefect recorded.
    """

    finished: Finished
    before: dict[str, int]
    deployed: subprocess.CompletedProcess[str]
    run: FlowRun
    run_deployed: FlowRun


@pytest.fixture(scope="module")
def second(first: Finished, store: Path, study: str) -> Again:
    """The same study again."""
    before = artifacts(store, *COMPUTED, "aggregate")
    finished = papa("run", study, "--store", str(store))
    assert finished.code == 0, finished.err
    deployed = subprocess.run(
        [sys.executable, "-c", AS_DEPLOYED, study, str(store)],
        cwd=Path(__file__).parents[2],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert deployed.returncode == 0, deployed.stderr
    return Again(finished, before, deployed, *own_flow_runs(store)[-2:])


def test_results_hold_every_cell(first: Finished, store: Path) -> None:
    folder = store / "studies" / "small"
    names = ("results.parquet", "summary.csv", "scores.png", "scores.svg", "report.html")
    for name in (*names, "study.yaml"):
        assert (folder / name).stat().st_size > 0
    results = pandas.read_parquet(folder / "results.parquet")
    columns = ["encoder", "task", "constants", "order", "fraction", "constant_heads", "seed"]
    assert list(results.columns[:10]) == [*columns, "metric", "score", "seconds"]
    assert len(results) == 2 * 3 * 2
    heads = results.groupby("fraction")["constant_heads"].unique().map(list).to_dict()
    assert heads == {0.0: [24], 0.5: [12], 1.0: [0]}
    assert results["score"].between(0, 1).all()
    shared = results[results["fraction"] != 0.5].groupby(["fraction", "seed"])["score"].nunique()
    assert (shared == 1).all(), "orders share the cells at 1 and 0"


def test_a_run_leaves_what_was_asked_and_tells_where_things_lie(
    first: Finished, store: Path
) -> None:
    assert len(artifacts(store, "probe")) == 4, "1, 0, and 1/2 in two orders share points"
    kept = yaml.safe_load((store / "studies" / "small" / "study.yaml").read_text())
    assert (kept["tasks"][0]["metric"], kept["tasks"][0]["train_rows"]) == ("accuracy", 64)
    page, database = store / "studies" / "small" / "report.html", store / "mlflow.db"
    assert database.is_file()
    for told in (str(page), "scores.png", f"papa ui --store {store}"):
        assert told in first.out
    assert not first.imported & {"vl_convert", "sklearn"}, "the report is written on a worker"


def test_repeated_everything_is_cached_and_no_engine_works(second: Again, store: Path) -> None:
    assert {step.state for step in second.run.steps.values()} == {"Cached"}, second.run.steps
    assert second.finished.imported == {"prefect", "mlflow"}
    assert artifacts(store, *COMPUTED, "aggregate") == second.before


@pytest.mark.parametrize("command", ["plan", "check"])
def test_to_look_at_a_finished_study_imports_no_engine(
    second: Again, study: str, store: Path, command: str
) -> None:
    finished = papa(command, study, "--store", str(store))
    assert finished.code == 0, finished.err
    assert not finished.imported


def test_runs_are_logged_once(second: Again, store: Path) -> None:
    runs = logged_runs(store)
    assert runs["role"].value_counts().to_dict() == {"study": 1, "cell": 2 * 3 * 2, "curve": 2}
    assert set(runs["status"]) == {"FINISHED"}
    results = pandas.read_parquet(store / "studies" / "small" / "results.parquet")
    scores = results.set_index(["order", "fraction", "seed"])["score"]
    client = connect(address_in(store))
    for run in runs[runs["role"] == "cell"].to_dict("records"):
        params = run["params"]
        score = scores[params["order"], float(params["fraction"]), int(params["seed"])]
        assert run["metrics"]["score"] == pytest.approx(score)
    losses = {
        run: client.get_metric_history(run, "train_loss")
        for run in runs[runs["role"] == "cell"]["id"]
    }
    assert [1] in [[one.step for one in of] for of in losses.values()]
    assert all(0 < one.value < 10 for of in losses.values() for one in of)
    (parent,) = runs[runs["role"] == "study"]["id"]
    for folder in ("constants/average", "lambda/seed-0"):
        assert client.list_artifacts(parent, f"all-MiniLM-L6-v2/reviews/{folder}")
    assert {"results/summary.csv", "results/report.html"} <= {
        file.path for file in client.list_artifacts(parent, "results")
    }


def test_a_plan_knows_what_is_cached(first: Finished, store: Path, study: str) -> None:
    steps = stages(study, store)
    kept = sum(stage in ("tokenise", "average", "rank") for stage in steps)
    finished = said("plan", study, "--store", str(store))
    assert f"{len(steps)} of {len(steps)} steps are cached; nothing would run." in finished.out
    changed = said("plan", study, "--store", str(store), "--set", "tasks.0.probe.epochs=2")
    assert f"{kept} of {len(steps)} steps are cached; {len(steps) - kept} would" in changed.out


def test_a_change_reruns_its_stage_and_what_depends_on_it(
    first: Finished, store: Path, study: str, tmp_path: Path
) -> None:
    own_store = shutil.copytree(store, tmp_path / "store")
    before = artifacts(own_store, *COMPUTED)
    finish_study(study, own_store, "tasks.0.probe.epochs=2")
    after = artifacts(own_store, *COMPUTED)
    assert after.items() >= before.items()
    assert {name.split("/")[0] for name in after.keys() - before.keys()} == {"probe", "baseline"}
    assert len(after) == len(before) + 5


def test_prefect_knows_the_study(second: Again) -> None:
    assert second.run.name == "small"
    assert second.run.state == "Completed"
    assert {step.attempts for step in second.run.steps.values()} == {1}


def test_the_deployed_flow_needs_its_parameters_alone(
    second: Again, store: Path, shallow: str
) -> None:
    assert second.deployed.stdout.strip() == str(store / "studies" / "small")
    run = second.run_deployed
    assert run.name == "small"
    assert {"small", shallow, "reviews"} <= set(run.tags)
    assert {step.state for step in run.steps.values()} == {"Cached"}
