"""A study killed with SIGKILL leaves nothing that runs, and goes on where it was."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from papa.processes import start_of
from tests.flows.conftest import SMALL, artifacts, papa, start, write_study
from tests.flows.history import mlflow_states, own_flow_runs
from tests.flows.processes import PATIENCE_SECONDS, descendants, is_loopback, listening, wait_until

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


def workers_below(root: int) -> list[int]:
    return [pid for pid, command in descendants(root).items() if "ray::Worker" in command]


def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "store"
    study = write_study(
        tmp_path, SMALL | {"orders": ["lambda"], "execution": {"shard_rows": 16, "workers": 2}}
    )
    arguments = ("run", study, "--store", str(store))
    with start(*arguments) as process:
        try:
            wait_until(lambda: artifacts(store, "average"), PATIENCE_SECONDS, "the average is done")
            wait_until(
                lambda: len(workers_below(process.pid)) == 2,
                PATIENCE_SECONDS,
                "both workers are up",
            )
            wait_until(lambda: mlflow_states(store), PATIENCE_SECONDS, "MLflow shows the study")
            children = {
                pid: (start_of(pid), command) for pid, command in descendants(process.pid).items()
            }
            addresses = listening({process.pid, *children})
        finally:
            os.kill(process.pid, signal.SIGKILL)
        # Ends only when nobody holds the pipes any more.
        process.communicate(timeout=PATIENCE_SECONDS)
    assert len(addresses) >= 1, "Prefect and Ray listen somewhere"
    assert all(is_loopback(address) for address in addresses), addresses
    # Ray's two agents, which do no work, take up to two minutes to notice.
    names = ("ray::Worker", "raylet/raylet", "gcs_server")
    rays = {
        pid: started
        for pid, (started, command) in children.items()
        if any(name in command for name in names)
    }
    servers = {
        pid: started for pid, (started, command) in children.items() if "flows.served" in command
    }
    assert len(rays) >= 4
    assert servers
    wait_until(
        lambda: all(start_of(pid) != started for pid, started in (rays | servers).items()),
        PATIENCE_SECONDS,
        "Prefect's server, Ray's servers and workers end by themselves",
    )
    before = artifacts(store, "tokenise", "average", "rank", "probe")
    assert mlflow_states(store)["parent"] == {"RUNNING"}, "nobody was left to end it"

    finished = papa(*arguments)

    assert finished.code == 0, finished.err
    after = artifacts(store, "tokenise", "average", "rank", "probe")
    assert after.items() >= before.items(), "finished steps are not repeated"
    assert len(after) == 1 + 1 + 1 + 3
    runs = own_flow_runs(store)
    assert [run.state for run in runs] == ["Crashed", "Completed"]
    assert "Running" not in {step.state for run in runs for step in run.steps.values()}
    assert not list((store / "scratch").iterdir())
    assert mlflow_states(store) == {key: {"FINISHED"} for key in ("parent", "cell", "curve")}
