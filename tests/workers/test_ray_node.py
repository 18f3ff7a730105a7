"""Ray on this machine: how it starts, and that nothing is left of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from papa.ray_node import RayNode
from papa.temporary import remove_abandoned, temporary_folder
from papa.worker import ClusterError
from papa.workers import WorkerPool
from tests.flows.processes import descendants, start_of, wait_until, without_engines
from tests.workers.parts import kill_started, process_id

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


def command(function: str, *arguments: str) -> list[str]:
    code = f"from tests.workers import parts; parts.{function}()"
    return [sys.executable, "-c", code, *arguments]


def environment() -> dict[str, str]:
    # Ray reads the second as it is imported.
    added = {"PYTHONPATH": str(Path(__file__).parents[2]), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return without_engines() | added


@pytest.mark.parametrize("name", ["gcs_server", "raylet"])
def test_a_process_that_dies_whenever_ray_starts_is_named_with_rays_log(name: str) -> None:
    before = descendants(os.getpid()).keys()
    kill_started(name, times=2)
    with WorkerPool(1, "cpu") as pool, pytest.raises(ClusterError, match=name) as raised:
        pool.run(process_id, arguments={})
    log_folder = Path(os.environ["PAPA_CACHE"], "ray-log")
    assert str(log_folder) in str(raised.value)
    assert log_folder.is_dir()
    assert descendants(os.getpid()).keys() <= before


def test_ray_that_does_not_start_in_time_is_ended() -> None:
    before = descendants(os.getpid()).keys()
    with temporary_folder("ray") as folder, pytest.raises(ClusterError, match="more than 0 s"):
        RayNode(folder / "1", cores=1, seconds=0.1)
    assert descendants(os.getpid()).keys() <= before


@pytest.mark.parametrize("victims", ["driver", "raylet and driver", "holder and driver"])
def test_nothing_is_left_of_a_killed_driver(victims: str) -> None:
    with subprocess.Popen(
        command("stay"), env=environment(), stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout
        folder = Path(driver.stdout.readline().strip())
        below = {pid: start_of(pid) for pid in descendants(driver.pid)}
        names = {psutil.Process(pid).name(): pid for pid in below}
        if "raylet" in victims:
            os.kill(names["raylet"], signal.SIGKILL)
        if "holder" in victims:
            (holder,) = psutil.Process(driver.pid).children()
            holder.kill()
        driver.kill()

    def is_over() -> bool:
        left = [pid for pid, started in below.items() if started and start_of(pid) == started]
        return not left and not folder.exists()

    assert folder.name.startswith("papa-ray-")
    if "holder" in victims:
        wait_until(lambda: start_of(names["raylet"]) is None, "the raylet ends with the holder")
        remove_abandoned()
        assert not folder.exists()
    else:
        wait_until(is_over, "its processes and its folder are gone")
