"""The scripts of the stack start what they say, and nobody without its password or token
is served.
"""

from __future__ import annotations

import sys

import psycopg2
import pytest

from tests.flows.history import ask
from tests.flows.processes import status
from tests.integration.service import SCRIPTS, Service, run
from tests.integration.services import Postgres

TOUCH = (
    "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); "
    "print(sorted({node['NodeManagerAddress'] for node in ray.nodes() if node['Alive']}))"
)


def test_nobody_is_served_without_the_password(
    database: Postgres, prefect: Service, tracking: Service
) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(database.url("postgres").replace(database.password, "wrong"))
    of_prefect, of_mlflow = prefect.environment, tracking.environment
    flows = f"{of_prefect['PREFECT_API_URL']}/flows/filter"
    question = "api/2.0/mlflow/experiments/search?max_results=1"
    experiments = f"{of_mlflow['MLFLOW_TRACKING_URI']}/{question}"
    login = f"papa:{of_mlflow['MLFLOW_TRACKING_PASSWORD']}"
    for address, right, body in (
        (flows, of_prefect["PREFECT_API_AUTH_STRING"], {}),
        (experiments, login, None),
    ):
        logins = (None, "papa:wrong", right)
        assert [status(address, one, body) for one in logins] == [401, 401, 200]


def test_deploying_again_changes_nothing(prefect: Service) -> None:
    for _ in range(2):
        run([SCRIPTS / "deploy.sh"], prefect.environment)
        assert {one["name"] for one in ask(prefect.environment, "deployments/filter")} == {
            "demo",
            "paper-figure2a",
            "study",
        }
        assert [one["name"] for one in ask(prefect.environment, "automations/filter")] == [
            "papa-dead-runs"
        ]


def test_two_hosts_are_one_cluster_for_whoever_has_the_token(head: Service, node: Service) -> None:
    touch = [sys.executable, "-c", TOUCH, head.environment["RAY_ADDRESS"]]
    assert "['10.77.0.1', '10.77.0.2']" in run(touch, head.environment)
    with pytest.raises(AssertionError, match="InvalidAuthToken"):
        run(touch, {**head.environment, "RAY_AUTH_TOKEN": "0" * 64})
