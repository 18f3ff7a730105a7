"""What a study would find around it: this machine's cores, memory, disks, limits and torch, and the
services, which are asked as a study asks them, all at once, and none for longer than ``PATIENCE``
seconds.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil

from flows.capacity import LEAST_BYTES
from flows.doctor import Finding, State
from flows.environment import missing_engines, prepare_environment
from flows.server import running_server
from papa.errors import PapaError, TransientError
from papa.storage.cache import cache_folder
from papa.storage.filesystem import in_time
from papa.study.store import Store, check_is_ours, is_marked
from papa.workers import OBJECT_STORE_BYTES, ClusterError, reach
from tasks.mlflow import check_tracking, database_of, tracking_address, without_password

PATIENCE = 10.0
_NO_STUDY = "papa-doctor"
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
    every = os.cpu_count() or 1
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
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
    memory, least = Path("/dev/shm"), OBJECT_STORE_BYTES
    if not memory.is_dir():
        return []
    free = psutil.disk_usage(str(memory)).free
    how = f"give it {least / 1e6:.0f} MB (docker: --shm-size=1g)"
    advice = f"Ray uses files instead, which is slow: {how}"
    found = f"{memory}: {free / 1e6:.0f} MB free"
    return [_judged("shared memory", found, advice, enough=free >= least)]


def _limit(what: str, number: int, least: int, command: str, other: int | None = None) -> Finding:
    # The hard limit: Ray raises what it may.
    hard = resource.getrlimit(number)[1]
    known = [limit for limit in (hard, other) if limit not in (None, resource.RLIM_INFINITY)]
    most = min(known, default=None)
    advice = f"Ray's processes may reach it: allow {least} or more ({command})"
    found = "unlimited" if most is None else str(most)
    return _judged(what, found, advice, enough=most is None or most >= least)


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


def services(store: Store, ray_address: str | None) -> list[Finding]:
    """Ask the hub, the store, and MLflow, Prefect and Ray where they are installed; nothing is made
    in the store.
    """
    looks: list[Callable[[], Finding]] = [_hub, lambda: _store(store)]
    if not missing_engines():
        address = ray_address or os.environ.get("RAY_ADDRESS")
        looks += [_mlflow(store), _prefect(store), lambda: _ray(address)]
    with ThreadPoolExecutor(len(looks)) as pool:
        return [future.result() for future in [pool.submit(look) for look in looks]]


def _asked(what: str, where: str, ask: Callable[[], str | None], *, broken: bool = True) -> Finding:
    """What a service answers."""
    try:
        return Finding(what, "ok", f"{where} answers{in_time(PATIENCE, ask) or ''}")
    except PapaError as error:
        # A message of ours ends in what to do.
        found, _, advice = str(error).rpartition(": ")
        state: State = "not reachable" if isinstance(error, TransientError) else "refused"
        return Finding(what, state, found, advice, broken)
    except OSError as error:
        advice = "look at what lies there, and at the network where that is elsewhere"
        return Finding(what, "not reachable", f"{where}: {error}", advice, broken)


def _hub() -> Finding:
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.utils import build_hf_headers, get_session

    where = without_password(constants.ENDPOINT)
    if constants.is_offline_mode():
        offline = "HF_HUB_OFFLINE is set: what is on this machine is used"
        return Finding("hub", "not configured", offline)

    def ask() -> str:
        address = f"{constants.ENDPOINT}/api/whoami-v2"
        try:
            answer = get_session().get(address, headers=build_hf_headers(), timeout=PATIENCE)
            status = answer.status_code
        except (HTTPError, ValueError):
            status = 0
        if not status or status >= 500:
            reason = f"status {status}" if status else "no answer"
            raise TransientError(
                f"{where} ({reason}): check the network and HF_ENDPOINT; what is on this machine "
                "already can be used"
            )
        if get_token() is None:
            return "; no token, so public models and datasets alone"
        if status in (401, 403):
            raise PapaError(
                f"{where} refuses the token (status {status}): log in with 'hf auth login' or set "
                "HF_TOKEN"
            )
        unknown = f"the token could not be checked (status {status})"
        return f"; {'the token is valid' if status == 200 else unknown}"

    return _asked("hub", where, ask, broken=False)


def _store(store: Store) -> Finding:
    def ask() -> str:
        store.files.check(write=True)
        if is_marked(store.address):
            return ", a store of PAPA"
        check_is_ours(store.address)
        return ", no store yet: the first study makes it"

    return _asked("store", store.address, ask)


def _mlflow(store: Store) -> Callable[[], Finding]:
    address = tracking_address(store)
    database, where = database_of(address), without_password(address)
    if database is not None and not database.exists():
        made = Finding("MLflow", "ok", f"{where}: the first study makes it")
        return lambda: made
    # Two engines imported at once, in two threads, could meet half a module.
    import mlflow  # noqa: F401

    return lambda: _asked("MLflow", where, partial(check_tracking, address, _NO_STUDY))


def _prefect(store: Store) -> Callable[[], Finding]:
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        own = Finding("Prefect", "not configured", "each study starts a server of its own")
        if port := running_server(store):
            own = Finding("Prefect", "ok", f"the one of papa ui, on port {port}")
        return lambda: own
    with tempfile.TemporaryDirectory() as home:
        prepare_environment(Store(home))
        from flows.flow_runs import check_server

    return lambda: _asked("Prefect", without_password(address), check_server)


def _ray(address: str | None) -> Finding:
    if not address:
        return Finding("Ray", "not configured", "each study starts it on this machine")

    def ask() -> str:
        try:
            reach(address)
        except ClusterError as error:
            raise TransientError(str(error)) from None
        return "; whether it takes this machine's token is known when a study joins it"

    return _asked("Ray", address, ask)
