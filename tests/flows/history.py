"""What Prefect's API tells of a store's studies; and the states of its runs in MLflow."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

from tests.flows.processes import without_engines
from tests.tasks.tracked import logged

Server = Mapping[str, str]
"""The environment of a server's clients."""


class FlowRun(NamedTuple):
    """A run of a study; by each step's name its state, and how often it began."""

    name: str
    state: str
    message: str | None
    steps: dict[str, str]
    attempts: dict[str, int]


_SERVE = """
import json, os, sys
from papa.flows.environment import settle_environment
settle_environment()
from papa.flows.server import PrefectServer
server = PrefectServer(PREFECT__SERVER_EPHEMERAL="1", PREFECT_UI_ENABLED="0")
assert server.use_unless_named()
server.wait(print)
names = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
print(json.dumps({name: os.environ[name] for name in names}), flush=True)
sys.stdin.read()
"""


@contextmanager
def own_server(extra_environment: Server = MappingProxyType({})) -> Iterator[dict[str, str]]:
    """A server as a study starts it, on the tests' own database, with ``more`` environment."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**without_engines(), **extra_environment},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()


def own_flow_runs(store: Path) -> list[FlowRun]:
    with own_server() as server:
        return flow_runs(store, server)


def flow_runs(store: Path, server: Server) -> list[FlowRun]:
    known = ask(server, "flow_runs/filter", {"sort": "START_TIME_ASC"})
    runs = [run for run in known if run["parameters"]["store"] == str(store)]
    steps = ask(server, "task_runs/filter", of_runs(*runs))
    assert max(len(known), len(steps)) < 200, "the API gives no more at once"
    listed = []
    for run in runs:
        steps_of_run = [step for step in steps if step["flow_run_id"] == run["id"]]
        # A run that was killed can leave a step of which no state was recorded yet.
        states = {step["name"]: step["state"]["name"] for step in steps_of_run if step["state"]}
        attempts = {step["name"]: step["run_count"] for step in steps_of_run}
        state = run["state"]
        listed.append(FlowRun(run["name"], state["name"], state["message"], states, attempts))
    return listed


def of_runs(*runs: Mapping[str, Any]) -> dict[str, object]:
    """A filter by flow runs."""
    return {"flow_runs": {"id": {"any_": [run["id"] for run in runs]}}}


def ask(server: Server, path: str, body: Mapping[str, object]) -> Any:
    login = server["PREFECT_API_AUTH_STRING"].split(":")
    address = f"{server['PREFECT_API_URL']}/{path}"
    answer = httpx.post(address, json=dict(body), auth=(login[0], login[1]), timeout=60)
    return answer.raise_for_status().json()


def mlflow_states(store: Path) -> dict[str, set[str]]:
    return logged(store, "small").groupby("role")["status"].agg(set).to_dict()
