"""This machine as a study would find it: cores, memory, disks, limits, torch."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

import psutil

from flows.capacity import LEAST_BYTES
from flows.installed import Finding
from papa.storage.cache import cache_folder
from papa.study.store import Store
from papa.workers.ray_session import OBJECT_STORE_BYTES

_LEAST_DISK = 5e9
_BLOCK = 2**20


def machine(store: Store) -> list[Finding]:
    """What the system says of itself, and whether the folders of a study can be written."""
    return [
        _cores(),
        _memory(),
        _disk("store's disk", store.root, broken=True),
        _disk("cache", cache_folder()),
        _temporary(),
        *_shared_memory(),
        _limit("open files", resource.RLIMIT_NOFILE, 4096, "ulimit -n"),
        _limit("processes", resource.RLIMIT_NPROC, 2048, "ulimit -u", _control_group("pids.max")),
    ]


def _judged(what: str, found: str, advice: str, *, enough: bool) -> Finding:
    return Finding(what, "ok", found) if enough else Finding(what, "low", found, advice)


def _cores() -> Finding:
    every = ours = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        ours = len(os.sched_getaffinity(0))
    found = f"{ours} of {every} may be used by this process"
    advice = f"use --workers {ours}, as a study starts one for each core of the machine"
    return _judged("cores", found, advice, enough=ours == every)


def _memory() -> Finding:
    free, whole = psutil.virtual_memory().available, psutil.virtual_memory().total
    limit = _control_group("memory.max", "memory/memory.limit_in_bytes")
    if limit is not None and limit < whole:
        free, whole = min(free, limit - (_control_group("memory.current") or 0)), limit
    least = f"{LEAST_BYTES / 1e9:.1f} GB"
    advice = f"a study with one worker takes {least} or more: end other processes"
    found = f"{free / 1e9:.1f} of {whole / 1e9:.1f} GB free"
    return _judged("memory", found, advice, enough=free >= LEAST_BYTES)


def _disk(what: str, folder: Path, *, broken: bool = False) -> Finding:
    """Write a nameless file where ``folder`` is, or will be made, and look at the disk below."""
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(_BLOCK))
    except OSError as error:
        advice = "free some space, correct its rights, or give another folder"
        found = f"{folder} cannot be written ({error.strerror})"
        return Finding(what, "unusable", found, advice, broken)
    free = psutil.disk_usage(str(existing)).free
    found, advice = f"{folder}: {free / 1e9:.1f} GB free", "free some space, or give another folder"
    return _judged(what, found, advice, enough=free >= _LEAST_DISK)


def _temporary() -> Finding:
    try:
        return _disk("temporary", Path(tempfile.gettempdir()), broken=True)
    except FileNotFoundError as error:
        advice = "set TMPDIR to a folder with room"  # Python found none that it can write to.
        return Finding("temporary", "unusable", str(error), advice, broken=True)


def _shared_memory() -> list[Finding]:
    """Where Ray keeps what its processes share."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        return []
    free = psutil.disk_usage(str(memory)).free
    advice = (
        f"Ray uses files instead, which is slow: give it {OBJECT_STORE_BYTES / 1e6:.0f} MB "
        "(docker: --shm-size=1g)"
    )
    found = f"{memory}: {free / 1e6:.0f} MB free"
    return [_judged("shared memory", found, advice, enough=free >= OBJECT_STORE_BYTES)]


def _limit(what: str, number: int, least: int, command: str, other: int | None = None) -> Finding:
    # The hard limit: Ray raises what it may.
    every = resource.getrlimit(number)[1], resource.RLIM_INFINITY if other is None else other
    most = min((limit for limit in every if limit != resource.RLIM_INFINITY), default=None)
    advice = f"Ray's processes may reach it: allow {least} or more ({command})"
    return _judged(
        what,
        "unlimited" if most is None else str(most),
        advice,
        enough=most is None or most >= least,
    )


def _control_group(*names: str) -> int | None:
    """What limits a container; None where nothing does."""
    for name in names:
        try:
            return int((Path("/sys/fs/cgroup") / name).read_text())
        except (OSError, ValueError):
            continue
    return None


def torch_here() -> list[Finding]:
    """Whether torch can be imported, and the GPUs that it finds."""
    try:
        from torch import __version__, cuda, version
    except (ImportError, OSError) as error:
        found = f"it cannot be imported ({' '.join(str(error).split())[:200]})"
        return [Finding("torch", "unusable", found, "install it again", broken=True)]
    findings = [
        Finding("torch", "ok", f"{__version__}, built for {version.cuda or version.hip or 'CPUs'}")
    ]
    for number in range(cuda.device_count()):
        free, whole = cuda.mem_get_info(number)
        found = f"{cuda.get_device_name(number)}, {free / 1e9:.1f} of {whole / 1e9:.1f} GB free"
        findings.append(Finding(f"GPU {number}", "ok", found))
    return findings
