"""What Prefect recorded of the studies of a store, asked through its API; and the states of its
runs in MLflow.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flows.environment import quiet_engines
from flows.server import OwnServer
from papa.study.store import Store
from tasks.mlflow import connect


@dataclass(frozen=True)
class TaskRun:
    """One step: the state it is in, and how often it began."""

    state: str
    attempts: int


@dataclass(frozen=True)
class FlowRun:
    """One run of a study with its steps by name, and how often the server was told of each kind of
    event.
    """

    name: str
    tags: list[str]
    state: str
    message: str | None
    steps: dict[str, TaskRun]
    events: Counter[str]


def own_flow_runs(store: Path) -> list[FlowRun]:
    """The runs in the store's own database, which nobody uses now, in the order in which they
    started.
    """
    with patch.dict(os.environ, PREFECT_HOME=str(store / "prefect")):
        quiet_engines()
        server = OwnServer(Store(store))
        try:
            server.wait()
            return flow_runs(store, f"http://127.0.0.1:{server.port}/api")
        finally:
            server.end()


def flow_runs(store: Path, address: str) -> list[FlowRun]:
    """The runs of a store's studies that a server knows, in the order in which they started."""
    known = _ask(address, "flow_runs/filter", {"sort": "START_TIME_ASC"})
    runs = [run for run in known if run["parameters"]["store"] == str(store)]
    steps = _ask(
        address, "task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"] for run in runs]}}}
    )
    return [
        FlowRun(
            name=run["name"],
            tags=run["tags"],
            state=run["state"]["name"],
            message=run["state"]["message"],
            steps={
                step["name"]: TaskRun(step["state"]["name"], step["run_count"])
                for step in steps
                if step["flow_run_id"] == run["id"]
            },
            events=_events(address, run["id"]),
        )
        for run in runs
    ]


def _events(address: str, run: str) -> Counter[str]:
    resource = {"id": [f"prefect.flow-run.{run}"]}
    counts = _ask(address, "events/count-by/event", {"filter": {"resource": resource}})
    return Counter({one["value"].removeprefix("prefect.flow-run."): one["count"] for one in counts})


def logged(store: Path, address: str) -> list[tuple[str | None, int, str]]:
    """What a server keeps of the log of a store's studies: task run's id (None for the flow's own),
    level, message.
    """
    runs = [
        run
        for run in _ask(address, "flow_runs/filter", {})
        if run["parameters"]["store"] == str(store)
    ]
    wanted = {
        "logs": {"flow_run_id": {"any_": [run["id"] for run in runs]}},
        "sort": "TIMESTAMP_ASC",
    }
    return [
        (one["task_run_id"], one["level"], one["message"])
        for one in _ask(address, "logs/filter", wanted)
    ]


def _ask(address: str, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{address}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        found = json.load(answer)
    assert len(found) < 200, "the API gives no more at once"
    return found


def mlflow_states(store: Path) -> dict[str, set[str]]:
    """The states of the runs that a study has in the store's MLflow, by their role."""
    if not (store / "mlflow.db").exists():
        return {}
    client = connect(f"sqlite:///{store / 'mlflow.db'}")
    experiments = [one.experiment_id for one in client.search_experiments()]
    states: dict[str, set[str]] = {}
    for run in client.search_runs(experiments, max_results=1000):
        states.setdefault(run.data.tags["papa.role"], set()).add(run.info.status)
    return states
