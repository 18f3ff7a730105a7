"""This machine as a study would find it: packages, cores, memory, disks, limits, torch."""

from __future__ import annotations

import os
import platform
import resource
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Literal

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flows.capacity import LEAST_BYTES
from papa.storage.cache import cache_folder
from papa.study.store import Store
from papa.workers.ray_session import OBJECT_STORE_BYTES

_LEAST_DISK = 5e9
_LEAST_FILES, _LEAST_PROCESSES = 4096, 2048
_BLOCK = 2**20
_DISTRIBUTION = "papa-attention"
State = Literal[
    "ok", "low", "unsupported", "missing", "unusable", "refused", "not reachable", "not configured"
]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: it, in a word or two.
        state: how it is.
        found: what was seen; no password and no token.
        advice: what to do where it is not well.
        broken: whether a study that is started here and now fails by it.
    """

    what: str
    state: State
    found: str
    advice: str = ""
    broken: bool = False


def installed() -> list[Finding]:
    """A finding for Python, PAPA, and each package that it needs."""
    try:
        wanted, own = requires(_DISTRIBUTION) or [], version(_DISTRIBUTION)
        pythons = SpecifierSet(metadata(_DISTRIBUTION)["Requires-Python"] or "")
    except PackageNotFoundError:
        advice = "install it, as with: pip install -e ."
        return [Finding(_DISTRIBUTION, "missing", "it is not installed here", advice, broken=True)]
    findings = [
        _compared("Python", platform.python_version(), pythons, f"use a Python {pythons}"),
        Finding(_DISTRIBUTION, "ok", own),
    ]
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            findings.append(_package(requirement))
    return findings


def _package(requirement: Requirement) -> Finding:
    name, advice = requirement.name, f"pip install '{requirement.name}{requirement.specifier}'"
    try:
        return _compared(name, version(name), requirement.specifier, advice)
    except PackageNotFoundError:
        return Finding(
            name, "missing", f"not installed ({requirement.specifier})", advice, broken=True
        )


def _compared(what: str, found: str, supported: SpecifierSet, advice: str) -> Finding:
    if supported.contains(found, prereleases=True):
        return Finding(what, "ok", f"{found} ({supported})")
    return Finding(what, "unsupported", f"{found} ({supported})", advice)


def machine(store: Store) -> list[Finding]:
    """What the system says of itself, and whether the folders of a study can be written."""
    return [
        _cores(),
        _memory(),
        _disk("store's disk", store.root, broken=True),
        _disk("cache", cache_folder()),
        _temporary(),
        *_shared_memory(),
        _limit("open files", resource.RLIMIT_NOFILE, _LEAST_FILES, "ulimit -n"),
        _limit(
            "processes",
            resource.RLIMIT_NPROC,
            _LEAST_PROCESSES,
            "ulimit -u",
            _control_group("pids.max"),
        ),
    ]


def _judged(what: str, found: str, advice: str, *, enough: bool) -> Finding:
    return Finding(what, "ok", found) if enough else Finding(what, "low", found, advice)


def _cores() -> Finding:
    every = ours = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        ours = len(os.sched_getaffinity(0))
    advice = f"use --workers {ours}, as a study starts one for each core of the machine"
    return _judged(
        "cores", f"{ours} of {every} may be used by this process", advice, enough=ours == every
    )


def _memory() -> Finding:
    memory, limit = (
        psutil.virtual_memory(),
        _control_group("memory.max", "memory/memory.limit_in_bytes"),
    )
    free, whole = memory.available, memory.total
    if limit is not None and limit < whole:
        free, whole = min(free, limit - (_control_group("memory.current") or 0)), limit
    advice = (
        f"a study with one worker takes {LEAST_BYTES / 1e9:.1f} GB or more: end other processes"
    )
    return _judged(
        "memory",
        f"{free / 1e9:.1f} of {whole / 1e9:.1f} GB free",
        advice,
        enough=free >= LEAST_BYTES,
    )


def _disk(what: str, folder: Path, *, broken: bool = False) -> Finding:
    """Write a nameless file where ``folder`` is, or will be made, and look at the disk below."""
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(_BLOCK))
    except OSError as error:
        advice = "free some space, correct its rights, or give another folder"
        return Finding(
            what, "unusable", f"{folder} cannot be written ({error.strerror})", advice, broken
        )
    free = psutil.disk_usage(str(existing)).free
    advice = "free some space, or give another folder"
    return _judged(what, f"{folder}: {free / 1e9:.1f} GB free", advice, enough=free >= _LEAST_DISK)


def _temporary() -> Finding:
    try:
        return _disk("temporary", Path(tempfile.gettempdir()), broken=True)
    except FileNotFoundError as error:
        # Python looks for a folder that it can write to, and found none.
        return Finding(
            "temporary", "unusable", str(error), "set TMPDIR to a folder with room", broken=True
        )


def _shared_memory() -> list[Finding]:
    """Where Ray keeps what its processes share."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return []
    free = psutil.disk_usage(str(place)).free
    advice = (
        f"Ray uses files instead, which is slow: give it {OBJECT_STORE_BYTES / 1e6:.0f} MB "
        "(docker: --shm-size=1g)"
    )
    found = f"{place}: {free / 1e6:.0f} MB free"
    return [_judged("shared memory", found, advice, enough=free >= OBJECT_STORE_BYTES)]


def _limit(what: str, number: int, least: int, command: str, other: int | None = None) -> Finding:
    # The hard limit: Ray raises what it may.
    hard = resource.getrlimit(number)[1]
    limits = [
        limit for limit in (hard, other) if limit is not None and limit != resource.RLIM_INFINITY
    ]
    most = min(limits, default=None)
    advice = f"Ray's processes may reach it: allow {least} or more ({command})"
    return _judged(
        what,
        "unlimited" if most is None else f"{most}",
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
        from torch import __version__, cuda
        from torch import version as built
    except (ImportError, OSError) as error:
        found = f"it cannot be imported ({' '.join(str(error).split())[:200]})"
        return [Finding("torch", "unusable", found, "install it again", broken=True)]
    findings = [
        Finding("torch", "ok", f"{__version__}, built for {built.cuda or built.hip or 'CPUs'}")
    ]
    for number in range(cuda.device_count()):
        free, whole = cuda.mem_get_info(number)
        found = f"{cuda.get_device_name(number)}, {free / 1e9:.1f} of {whole / 1e9:.1f} GB free"
        findings.append(Finding(f"GPU {number}", "ok", found))
    return findings
