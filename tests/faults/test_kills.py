"""Processes of a study, and those beside it, killed at drawn points."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pandas
import pytest

from tests.faults.life import Live
from tests.faults.points import draw
from tests.faults.services import revived
from tests.integration.s3 import s3_server
from tests.integration.services import mlflow_server

pytestmark = pytest.mark.faults

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


@pytest.mark.parametrize(
    ("seed", "victims"),
    [
        *(
            (seed, ["driver", "driver", "worker", "worker", "Prefect", "Prefect"])
            for seed in range(4)
        ),
        *(
            (seed, ["node", "driver", "worker", "worker", "Prefect", "Prefect"])
            for seed in range(4, 6)
        ),
        *(
            (seed, ["GCS", "driver", "worker", "worker", "Prefect", "Prefect"])
            for seed in range(6, 8)
        ),
    ],
)
def test_alone(
    seed: int,
    victims: list[str],
    undisturbed: pandas.DataFrame,
    live: Live,
    tmp_path: Path,
) -> None:
    """A folder, Prefect's server of the study's own, MLflow in a file."""
    life = live(tmp_path / "store")
    life.live(draw(seed, victims))
    life.check(undisturbed)


@pytest.mark.parametrize("seed", [100, 101])
def test_with_servers(
    seed: int,
    undisturbed: pandas.DataFrame,
    live: Live,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store and MLflow behind servers, which are killed and come back."""
    # Filesystems of another server, at the same address of the store.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    points = [f"{stage} started" for stage in ("tokenise", "average", "rank", "probe", "aggregate")]
    faults = draw(seed, ["store", "store", "store", "worker", "driver", "MLflow"], points)
    database = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        s3_server(tmp_path / "s3") as storage,
        revived(storage.process) as store,
        mlflow_server(tmp_path / "mlflow", database, str(tmp_path / "files")) as service,
        revived(service.process) as tracking,
    ):
        storage.make_bucket("papa")
        more = {
            **storage.environment(),
            **service.environment,
            "PAPA_CACHE": str(tmp_path / "cache"),
        }
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        life = live("s3://papa/store", more, {"store": store, "MLflow": tracking})
        life.live(faults)
        life.check(undisturbed)
