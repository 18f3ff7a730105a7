"""CPU cores and memory that a process may use, from control groups as the kernel writes them."""

import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from papa.resources import ControlGroups, resident_bytes, usable_cores, usable_memory

ONE_CORE = {"cpu.max": "100000 100000\n"}
HALF_A_CORE = {"cpu.max": "50000 100000\n"}
NO_LIMIT = {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "4096\n"}


def groups_of(folder: Path, membership: str, files: dict[str, dict[str, str]]) -> ControlGroups:
    """Return control groups with the given ``/proc/self/cgroup`` and files of each group."""
    (folder / "membership").write_text(membership)
    for group, contents in files.items():
        path = folder / "mount" / group
        path.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (path / name).write_text(content)
    return ControlGroups(folder / "membership", folder / "mount")


def memory_v2(limit: str, usage: int, cached: int = 0) -> dict[str, str]:
    return {
        "memory.max": f"{limit}\n",
        "memory.current": f"{usage}\n",
        "memory.stat": f"anon 1\ninactive_file {cached}\n",
    }


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        pytest.param("0::/job/step\n", {"job/step": ONE_CORE}, 1.0, id="own group"),
        pytest.param("0::/job/step\n", {"job": ONE_CORE, "job/step": NO_LIMIT}, 1.0, id="parent"),
        pytest.param("0::/of/the/host\n", {"": ONE_CORE}, 1.0, id="container"),
        pytest.param("0::/job\n", {"job": NO_LIMIT}, math.inf, id="no limit"),
        pytest.param(
            "4:cpu,cpuacct:/job\n1:memory:/other\n",
            {"cpu/job": {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}},
            1.5,
            id="version 1",
        ),
    ],
)
def test_cores_are_those_of_the_tightest_group(
    tmp_path: Path, membership: str, files: dict[str, dict[str, str]], expected: float
) -> None:
    assert groups_of(tmp_path, membership, files).cores() == expected


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        pytest.param("0::/job\n", {"job": memory_v2("4096", 1024)}, 3072.0, id="version 2"),
        pytest.param("0::/job\n", {"job": memory_v2("4096", 4096, 512)}, 512.0, id="cached files"),
        pytest.param("0::/job\n", {"job": memory_v2("max", 4096)}, math.inf, id="no limit"),
        pytest.param(
            "0::/job/step\n",
            {"job": memory_v2("4096", 4000), "job/step": memory_v2("2048", 1024)},
            96.0,
            id="lowest",
        ),
        pytest.param(
            "3:memory:/job\n",
            {
                "memory/job": {
                    "memory.limit_in_bytes": "4096\n",
                    "memory.usage_in_bytes": "2048\n",
                    "memory.stat": "inactive_file 7\ntotal_inactive_file 48\n",
                }
            },
            2096.0,
            id="version 1",
        ),
    ],
)
def test_free_memory_is_that_of_the_tightest_group(
    tmp_path: Path, membership: str, files: dict[str, dict[str, str]], expected: float
) -> None:
    assert groups_of(tmp_path, membership, files).free_memory() == expected


def test_less_than_a_core_is_one(tmp_path: Path) -> None:
    assert usable_cores(groups_of(tmp_path, "0::/\n", {"": HALF_A_CORE})) == 1


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path / "none", tmp_path / "none")
    assert (groups.cores(), groups.free_memory()) == (math.inf, math.inf)
    assert usable_memory(groups) < math.inf


@pytest.fixture
def one_core() -> Iterator[None]:
    """Bind this thread to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity of processes"
)
@pytest.mark.usefixtures("one_core")
def test_cores_are_those_of_the_affinity() -> None:
    assert usable_cores() == 1


@pytest.mark.parametrize("granted", ["1", "4096", "nonsense"])
def test_slurm_grants_at_most_all_cores(granted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    without_slurm = usable_cores()
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", granted)
    assert usable_cores() == (1 if granted == "1" else without_slurm)


@pytest.mark.server
def test_an_ended_process_holds_no_memory() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = psutil.Process(child.pid)
        alive = resident_bytes(process)
        child.kill()
    assert alive > 0
    assert resident_bytes(process) == 0
