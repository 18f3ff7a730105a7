"""CPU cores and memory that this process may use, which may be less than the machine has.

A batch system, a container or ``taskset`` gives a process a part of its machine: by its CPU
affinity, by limits of the Linux control groups (cgroups) around it, or, where a Slurm cluster
enforces neither, only by the environment.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil


@dataclass(frozen=True)
class ControlGroups:
    """The control groups that this process belongs to, of version 1 or 2, which the file
    ``membership`` names (man 7 cgroups); their files lie below ``mount``.

    The limits of every group from the process's own up to the root hold, so the lowest counts.
    """

    membership: Path = Path("/proc/self/cgroup")
    mount: Path = Path("/sys/fs/cgroup")

    def folders(self, controller: str) -> Iterator[Path]:
        """Yield the folders of the groups with a controller such as "memory", innermost first."""
        try:
            lines = self.membership.read_text().splitlines()
        except OSError:  # Not on Linux.
            return
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if not controllers:  # Version 2 has one hierarchy for all controllers.
                mount = self.mount
            elif controller in controllers.split(","):
                mount = self.mount / controller
            else:
                continue
            group = PurePosixPath(path)
            for ancestor in (group, *group.parents):
                # In a container the path may be the host's, which is not mounted here: the files
                # of the mount itself, which come last, are the container's.
                yield mount / ancestor.relative_to("/")

    def cores(self) -> float:
        """Return the CPU time that the groups grant per second of time; infinity: no limit."""
        return min(map(_cores_of, self.folders("cpu")), default=math.inf)

    def free_memory(self) -> float:
        """Return the bytes that may still be allocated in the groups; infinity: no limit."""
        return min(map(_free_memory_of, self.folders("memory")), default=math.inf)


def usable_cores(groups: ControlGroups = ControlGroups()) -> int:
    """Return how many CPU cores this process may keep busy; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores: float = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    with suppress(KeyError, ValueError):
        # Not every Slurm cluster binds a task to its cores.
        cores = min(cores, int(os.environ["SLURM_CPUS_PER_TASK"]))
    # A fraction of a core does not serve a further worker.
    return max(1, math.floor(min(cores, groups.cores())))


def usable_memory(groups: ControlGroups = ControlGroups()) -> int:
    """Return how many more bytes of memory this process may use."""
    return int(min(psutil.virtual_memory().available, groups.free_memory()))


def resident_bytes(process: psutil.Process) -> int:
    """Return the bytes of memory that a process holds: none once it has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _cores_of(group: Path) -> float:
    quota = math.inf
    period = 1.0
    with suppress(OSError, ValueError):
        quota_text, period_text = (group / "cpu.max").read_text().split()
        quota = float(quota_text.replace("max", "inf"))
        period = float(period_text)
    with suppress(OSError, ValueError):
        quota_v1 = float((group / "cpu.cfs_quota_us").read_text())
        if quota_v1 > 0:  # -1: no limit.
            quota = quota_v1
            period = float((group / "cpu.cfs_period_us").read_text())
    return quota / period


_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""For version 2 and 1 the files of a group's limit and use, and the key in ``memory.stat`` of the
cached files that the kernel drops when memory is needed.
"""


def _free_memory_of(group: Path) -> float:
    free = math.inf
    for limit_name, usage_name, cached_key in _MEMORY_FILES:
        with suppress(OSError, ValueError):
            limit = float((group / limit_name).read_text().replace("max", "inf"))
            usage = float((group / usage_name).read_text())
            pairs = (line.split() for line in (group / "memory.stat").read_text().splitlines())
            statistics = {key: float(value) for key, value in pairs}
            free = max(0.0, limit - usage + statistics.get(cached_key, 0.0))
    return free
