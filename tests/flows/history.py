"""What Prefect recorded of the studies of a store, asked through its API; and the states of its
runs in MLflow.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasks.mlflow import connect
from tests.flows.processes import without_engines


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
    """The runs of a store's studies in the user's own database, which nobody uses now, in the order
    in which they started.
    """
    with own_server() as server:
        return flow_runs(store, server)


Server = Mapping[str, str]
"""The environment of a server's clients."""
_SERVE = """
import json, os, sys
from flows.server import settle_environment, start_server
settle_environment()
start_server()()
names = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
print(json.dumps({name: os.environ[name] for name in names}), flush=True)
sys.stdin.read()
"""


@contextmanager
def own_server(more: Server = MappingProxyType({})) -> Iterator[dict[str, str]]:
    """A server as a study starts it, on the tests' own database, with ``more`` environment."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**without_engines(), **more},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


def flow_runs(store: Path, address: Server) -> list[FlowRun]:
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


def _events(address: Server, run: str) -> Counter[str]:
    resource = {"id": [f"prefect.flow-run.{run}"]}
    counts = _ask(address, "events/count-by/event", {"filter": {"resource": resource}})
    return Counter({one["value"].removeprefix("prefect.flow-run."): one["count"] for one in counts})


def _ask(address: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    if password := address.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {base64.b64encode(password.encode()).decode()}"
    request = urllib.request.Request(
        f"{address['PREFECT_API_URL']}/{path}", json.dumps(body).encode(), headers
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
