"""MLflow's server on PostgreSQL, with users: nothing is logged or read in any other way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from papa.errors import PapaError
from papa.storage.store import Store
from tests.integration.service import Service
from tests.tasks.tracked import MODELS, RESULTS, log_study, logged


@pytest.fixture
def address(tracking: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address; user and password are in the environment."""
    for name, value in tracking.environment.items():
        monkeypatch.setenv(name, value)
    return tracking.environment["MLFLOW_TRACKING_URI"]


def test_two_first_studies_at_once_and_results_bit_by_bit(address: str, tmp_path: Path) -> None:
    studies = [
        threading.Thread(target=log_study, args=(name, Store(tmp_path / name)))
        for name in ("one", "two")
    ]
    for study in studies:
        study.start()
    for study in studies:
        study.join()
    for name in ("one", "two"):
        runs = logged(address, name)
        assert set(runs["status"]) == {"FINISHED"}
        counts = {"study": 1, "cell": len(RESULTS), "curve": len(MODELS)}
        assert runs["role"].value_counts().to_dict() == counts
        scores = [metrics["score"] for metrics in runs.query("role == 'cell'")["metrics"]]
        assert sorted(scores) == sorted(RESULTS["score"])


def test_a_wrong_password_is_one_sentence(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    with pytest.raises(PapaError, match=r"cannot be used \(.* 401 .*MLFLOW_TRACKING_PASSWORD"):
        log_study("refused", Store(tmp_path))
