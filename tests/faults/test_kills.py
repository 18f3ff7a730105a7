"""Processes of a study, and servers beside it, killed at drawn points; and a full disk."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import fsspec
import pandas
import pytest

from tests.faults.life import Fault, Life, Revived, Seen, draw
from tests.integration.service import s3_server
from tests.integration.services import mlflow_server
from tests.storage.conftest import small_disk

Live = Callable[..., Life]
ALWAYS = ("driver", "worker", "worker", "Prefect", "Prefect")

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


@pytest.mark.slow
@pytest.mark.server
def test_a_study_outlives_faults(undisturbed: pandas.DataFrame, live: Live, tmp_path: Path) -> None:
    life = live(tmp_path / "store")
    faults = [
        Fault("worker", "average started"),
        Fault("Prefect", "train_lambda started"),
        Fault("driver", "train_lambda done"),
        Fault("node", "probe started"),
    ]
    life.live(faults)
    ended = "ended in a sentence, run again"
    outcomes = [outcome for _, outcome in life.struck]
    assert outcomes == ["the study went on", ended, "killed, run again", ended]
    of_server, of_node = [line for line in life.log if line.startswith("error: ")]
    assert "Prefect's server on this machine was killed" in of_server
    assert "steps are kept" in of_server
    assert "raylet" in of_node
    life.check(undisturbed)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("seed", "victim"),
    [*((seed, "driver") for seed in range(4)), (4, "node"), (5, "node"), (6, "GCS"), (7, "GCS")],
)
def test_alone(
    seed: int, victim: str, undisturbed: pandas.DataFrame, live: Live, tmp_path: Path
) -> None:
    """A folder, Prefect's server of the study's own, MLflow in a file."""
    life = live(tmp_path / "store")
    life.live(draw(seed, [victim, *ALWAYS]))
    life.check(undisturbed)


@pytest.mark.faults
@pytest.mark.parametrize("seed", [100, 101])
def test_with_servers(
    seed: int,
    undisturbed: pandas.DataFrame,
    live: Live,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Filesystems of another server, at the same address of the store.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    stages = ("tokenise", "average", "train_lambda", "probe", "aggregate")
    points = [f"{stage} started" for stage in stages]
    faults = draw(seed, ["store", "store", "store", "worker", "driver", "MLflow"], points)
    database = f"sqlite:///{tmp_path}/mlflow.db"
    with (
        s3_server(tmp_path / "s3") as storage,
        mlflow_server(tmp_path / "mlflow", database, str(tmp_path / "files")) as service,
        ExitStack() as stack,
    ):
        mlflow = service.environment["MLFLOW_TRACKING_URI"]
        servers = {
            "store": Revived(storage.process, f"{storage.endpoint}/healthz"),
            "MLflow": Revived(service.process, f"{mlflow}/health"),
        }
        for server in servers.values():
            stack.callback(server.end)
        storage.make_bucket("papa")
        cache = {"PAPA_CACHE": str(tmp_path / "cache")}
        run_environment = {**storage.environment(), **service.environment, **cache}
        for name, value in run_environment.items():
            monkeypatch.setenv(name, value)
        life = live("s3://papa/store", run_environment, servers)
        life.live(faults)
        life.check(undisturbed)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "store" / "artifacts", 32) as mount_point:
        yield mount_point


@pytest.mark.faults
def test_a_study_waits_for_room(undisturbed: pandas.DataFrame, live: Live, disk: Path) -> None:
    life = live(disk.parent)
    states = ["room", "full", "room again"]

    def fill(observed: Seen) -> None:
        if states[0] == "room" and observed.has_reached("average started"):
            del states[0]
            with (disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
        elif states[0] == "full" and any("is full: free some" in line for line in observed.lines):
            del states[0]
            (disk / "fill").unlink()

    code = life.once(fill)
    assert states == ["room again"]
    if code:
        life.live([])
    life.check(undisturbed)
