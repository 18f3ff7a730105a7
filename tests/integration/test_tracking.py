"""MLflow's server on PostgreSQL: nothing is logged or read in any other way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from papa.study.store import Store
from tasks.tracking import check_tracking
from tests.integration.services import Postgres, create_databases, mlflow_server
from tests.reporting.studies import results
from tests.tasks.tracked import MODELS, RESULTS, log_at_once, log_study, logged

FEW = results(encoders=MODELS, fractions=(1.0, 0.0), seeds=(0,))


@pytest.fixture(scope="module")
def address(place: Path, database: Postgres) -> Iterator[str]:
    """The address of a server whose database is new; user and password are in the environment."""
    create_databases(database, ["tracking"])
    folder = place / "tracking"
    with (
        mlflow_server(folder, database.url("tracking"), str(folder / "files")) as service,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in service.environment.items():
            patch.setenv(name, value)
        yield service.environment["MLFLOW_TRACKING_URI"]


def test_two_first_studies_at_once(address: str, tmp_path: Path) -> None:
    log_at_once(*((name, tmp_path / name, address) for name in ("one", "two", "two")))
    for name in ("one", "two"):
        runs = logged(address, name)
        assert set(runs["status"]) == {"FINISHED"}
        assert runs["key"].is_unique
        assert runs["role"].value_counts().to_dict() == {
            "parent": len(MODELS),
            "cell": len(RESULTS),
            "curve": len(MODELS),
        }


def test_results_come_back_bit_by_bit(address: str, tmp_path: Path) -> None:
    check_tracking(address, "back")
    log_study("back", Store(tmp_path), address, FEW)
    check_tracking(address, "back")
    scores = [run["score"] for run in logged(address, "back").query("role == 'cell'")["metrics"]]
    assert sorted(scores) == sorted(FEW["score"])
