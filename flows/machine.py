"""This machine as a study would find it: cores, memory, disks, limits, and how fast torch multiplies matrices here."""

from __future__ import annotations

import os
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import Literal

import psutil

from flows.capacity import LEAST_BYTES
from flows.costs import CORE, matrix_rate
from flows.findings import Finding
from papa.encoders.precision import has_bfloat16
from papa.storage.cache import cache_folder
from papa.workers.ray_session import OBJECT_STORE_BYTES
from tasks.store import Store

_LEAST_DISK = 5e9
_LEAST_FILES, _LEAST_PROCESSES = 4096, 2048
_BLOCK, _SLOW_SYNC = 2**20, 0.2
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gluster", "beegfs", "gpfs", "fuse.", "virtiofs")
_WIDTH = 768
"""Of BERT-base: one of its linear maps is multiplied."""
_SLOW = 0.25
"""The share of the assumed rate below which a core counts as slow."""


def machine(store: Store) -> list[Finding]:
    """What the system says of itself, and whether the folders that a study writes to can be written."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return [
        Finding("machine", "system", "ok", system),
        _cores(),
        _memory(),
        _disk("store's disk", store.root, broken=True),
        _disk("cache", cache_folder()),
        _temporary(),
        *_shared_memory(),
        _limit("open files", resource.RLIMIT_NOFILE, _LEAST_FILES, "ulimit -n"),
        _limit("processes", resource.RLIMIT_NPROC, _LEAST_PROCESSES, "ulimit -u", _control_group("pids.max")),
    ]


def _cores() -> Finding:
    every = ours = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        ours = len(os.sched_getaffinity(0))
    if ours == every:
        return Finding("machine", "cores", "ok", f"{every}")
    advice = f"use --workers {ours}, as a study starts one for each core of the machine"
    return Finding("machine", "cores", "low", f"{ours} of {every} may be used by this process", advice)


def _memory() -> Finding:
    memory, limit = psutil.virtual_memory(), _control_group("memory.max", "memory/memory.limit_in_bytes")
    free, whole = memory.available, memory.total
    if limit is not None and limit < whole:
        free, whole = min(free, limit - (_control_group("memory.current") or 0)), limit
    found = f"{free / 1e9:.1f} of {whole / 1e9:.1f} GB free"
    if free >= LEAST_BYTES:
        return Finding("machine", "memory", "ok", found)
    advice = f"a study with one worker takes {LEAST_BYTES / 1e9:.1f} GB or more: end other processes"
    return Finding("machine", "memory", "low", found, advice)


def _disk(what: str, folder: Path, *, broken: bool = False) -> Finding:
    """Write a file without a name where ``folder`` is, or will be made, and look at the disk below."""
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            started = time.perf_counter()
            file.write(bytes(_BLOCK))
            file.flush()
            os.fsync(file.fileno())
            seconds = time.perf_counter() - started
    except OSError as error:
        advice = "free some space, correct its rights, or give another folder"
        return Finding("machine", what, "unusable", f"{folder} cannot be written ({error.strerror})", advice, broken)
    free, kind = psutil.disk_usage(str(existing)).free, _file_system(existing)
    found = f"{folder}: {kind}, {free / 1e9:.1f} GB free, 1 MB synced in {seconds * 1e3:.0f} ms"
    if free < _LEAST_DISK:
        return Finding("machine", what, "low", found, "free some space, or give another folder")
    if seconds > _SLOW_SYNC or kind.startswith(_NETWORK):
        return Finding("machine", what, "slow", found, "a folder on a local disk is faster")
    return Finding("machine", what, "ok", found)


def _temporary() -> Finding:
    try:
        return _disk("temporary", Path(tempfile.gettempdir()), broken=True)
    except FileNotFoundError as error:
        # Python looks for a folder that it can write to, and found none.
        return Finding("machine", "temporary", "unusable", str(error), "set TMPDIR to a folder with room", broken=True)


def _file_system(path: Path) -> str:
    """The kind of the file system that a path lies on, such as ``ext4``."""
    place = path.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if place.is_relative_to(one.mountpoint)]
    # Of several on one place the last was mounted over the others.
    return max(reversed(mounts), key=lambda one: len(Path(one.mountpoint).parts)).fstype if mounts else "unknown"


def _shared_memory() -> list[Finding]:
    """Where Ray keeps what its processes share."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return []
    free = psutil.disk_usage(str(place)).free
    found = f"{place}: {free / 1e6:.0f} MB free"
    if free >= OBJECT_STORE_BYTES:
        return [Finding("machine", "shared memory", "ok", found)]
    advice = f"Ray uses files instead, which is slow: give it {OBJECT_STORE_BYTES / 1e6:.0f} MB (docker: --shm-size=1g)"
    return [Finding("machine", "shared memory", "low", found, advice)]


def _limit(what: str, number: int, least: int, command: str, other: int | None = None) -> Finding:
    soft, hard = resource.getrlimit(number)
    # Ray raises what it may.
    known = [one for one in (hard, other) if one is not None and one != resource.RLIM_INFINITY]
    most = min(known, default=None)
    found = "unlimited" if most is None else f"{most}" + (f", now {soft}" if soft not in (hard, most) else "")
    if most is None or most >= least:
        return Finding("machine", what, "ok", found)
    advice = f"Ray's processes may reach it: allow {least} or more ({command})"
    return Finding("machine", what, "low", found, advice)


def _control_group(*names: str) -> int | None:
    """What limits a container; None where nothing does."""
    for name in names:
        try:
            return int((Path("/sys/fs/cgroup") / name).read_text())
        except (OSError, ValueError):
            continue
    return None


def torch_here() -> list[Finding]:
    """How torch computes here, and its rate in matrix products beside the one that ``papa plan`` assumes."""
    try:
        import torch
    except (ImportError, OSError) as error:
        found = f"it cannot be imported ({' '.join(str(error).split())[:200]})"
        return [Finding("torch", "torch", "unusable", found, "install it again", broken=True)]
    available = {"MKL": torch.backends.mkl.is_available(), "oneDNN": torch.backends.mkldnn.is_available()}
    libraries = ", ".join(f"{'with' if there else 'without'} {name}" for name, there in available.items())
    found = f"{torch.__version__}, {torch.get_num_threads()} threads, {libraries}"
    half = "the CPU multiplies in it" if has_bfloat16() else "the CPU has no instructions for it: precision float32"
    findings = [Finding("torch", "torch", "ok", found), Finding("torch", "bfloat16", "ok", half), *_graphics()]
    return [*findings, _rate("float32"), *([_rate("bfloat16")] if has_bfloat16() else [])]


def _graphics() -> list[Finding]:
    from torch import cuda, version

    if not cuda.is_available():
        built = version.cuda or version.hip
        advice = f"look at its driver, if there is one: this torch is built for {built}" if built else ""
        return [Finding("torch", "GPU", "not configured", "none that torch can use", advice)]
    findings = []
    for number in range(cuda.device_count()):
        free, whole = cuda.mem_get_info(number)
        found = f"{cuda.get_device_name(number)}, {free / 1e9:.1f} of {whole / 1e9:.1f} GB free"
        findings.append(Finding("torch", f"GPU {number}", "ok", found))
    return findings


def _rate(precision: Literal["float32", "bfloat16"]) -> Finding:
    rate = matrix_rate("cpu", precision, _WIDTH)
    found = f"{rate / 1e9:.0f} GFLOP/s a core; papa plan measures float32, or takes {CORE / 1e9:.0f}"
    if rate >= _SLOW * CORE:
        return Finding("torch", precision, "ok", found)
    return Finding("torch", precision, "slow", found, "other processes use the cores, or this CPU is slow")
