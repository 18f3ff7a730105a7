"""Ray on this machine alone, on loopback with a session folder of its own, or a cluster."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from papa.errors import PapaError
from papa.processes import Process

OBJECT_STORE_BYTES = 512 * 2**20
_SOCKET_PATH_ROOM = 107 - len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
_TEMPORARY = "papa-ray-"
_SUFFIX = 8
"""Characters that ``tempfile`` adds."""
_DRIVER = "driver"


def start(cores: int, folder: Path | None) -> tuple[Any, Path]:
    """Start Ray; returns the module and the session's folder, which is to be removed in the end."""
    _prepare_environment()
    import ray

    remove_dead_sessions(_short_temporary(), *([folder] if folder else []))
    temporary = session_folder(folder)
    try:
        with _without_unused_parts():
            ray.init(
                address="local",
                num_cpus=cores,
                _node_ip_address="127.0.0.1",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(temporary),
                job_config=_job(ray),
            )
    except Exception:
        ray.shutdown()
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return ray, temporary


def _job(ray: Any) -> Any:
    """Workers import nothing from the folder that this process was started in, where a study may
    lie beside a ``numpy.py``: Ray would put it first on their path, unless it takes a job for one
    of its clients'.
    """
    return ray.job_config.JobConfig(_client_job=True)


def check() -> None:
    """Make sure that the processes that ``start`` started run: without them no call is answered any
    more, and Ray itself would wait for a minute and then end this process, or for ever.
    """
    from ray._private import worker

    node = getattr(worker, "_global_node", None)
    lost: list[str] = [name for name, _ in node.dead_processes()] if node else []
    if lost:
        raise ClusterError(
            f"Ray's process {lost[0]} on this machine was killed, or ended: run the same command "
            "again to go on"
        )


@contextmanager
def _without_unused_parts() -> Iterator[None]:
    """Ray started inside the block has neither autoscaler nor dashboard nor log monitor, and prints
    nothing.

    On one machine nothing uses these processes: they take half of the time that Ray needs to start,
    and a second to end. The dashboard's process starts even with ``include_dashboard=False``, its
    agent imports what it needs to serve pages unless that is missing, and no argument of
    ``ray.init`` leaves out the others. What Ray prints of a process that ended is dozens of lines
    of its log; ``check`` says it in one. Where a version of Ray has no such function, what it
    started stays.
    """
    from ray._private import utils, worker
    from ray._private.node import Node

    def start_nothing(node: Any, **_: Any) -> None:
        node._webui_url = ""

    def print_nothing(*_: Any) -> None:
        """A thread's work, which ends at once."""

    def missing() -> ImportError:
        return ImportError("the dashboard is left out")

    unused = [
        (Node, "start_monitor", start_nothing),
        (Node, "start_log_monitor", start_nothing),
        (Node, "start_api_server", start_nothing),
        (worker, "listen_error_messages", print_nothing),
        (utils, "get_dashboard_dependency_error", missing),
    ]
    with ExitStack() as stack:
        for owner, name, instead in unused:
            if hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, instead)
        yield


def session_folder(wanted: Path | None) -> Path:
    """A new folder for Ray's session: under ``wanted`` where sockets' paths fit, else elsewhere."""
    fits = (
        wanted is not None and len(os.fsencode(wanted / _TEMPORARY)) + _SUFFIX <= _SOCKET_PATH_ROOM
    )
    parent = wanted if wanted is not None and fits else _short_temporary()
    parent.mkdir(parents=True, exist_ok=True)
    # It gets its name once it says whose it is: what has this name and does not say so is nobody's.
    nameless = Path(tempfile.mkdtemp(prefix=f".{_TEMPORARY}", dir=parent))
    (nameless / _DRIVER).write_text(str(Process.this()))
    return nameless.rename(parent / nameless.name.removeprefix("."))


def remove_dead_sessions(*parents: Path) -> None:
    """Remove session folders that killed drivers of this user and machine left in ``parents``."""
    for folder in (found for parent in parents for found in parent.glob(f"{_TEMPORARY}*")):
        with suppress(OSError, ValueError):
            driver = Process.parse((folder / _DRIVER).read_text())
            if driver is not None and driver.gone and folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _short_temporary() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if len(os.fsencode(folder)) <= _SOCKET_PATH_ROOM - 30 else Path("/tmp")


def _prepare_environment() -> None:
    """Ray reads these when it is imported and when it starts its processes.

    ``_node_ip_address="127.0.0.1"`` alone is not enough: Ray turns it into the machine's outward
    address, unless it believes that clusters are switched off.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        # A token of this process's own; without one Ray writes one into the home folder, for all
        # sessions.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")


_CLIENT = "ray://"
_ANSWER_SECONDS = 5.0


class ClusterError(PapaError):
    """Ray, on this machine or a cluster, cannot be reached, refuses or has ended."""


def join(address: str) -> Any:
    """Connect this process to the cluster as a driver, by ``host:port`` of the head where this
    machine is a node, or ``ray://host:port`` from anywhere; returns Ray's module.
    """
    reach(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's own patience with a wrong token is 20 and 30 seconds.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "8")
    os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "2")
    import ray

    try:
        job = {} if address.startswith(_CLIENT) else {"job_config": _job(ray)}
        ray.init(address=address, log_to_driver=True, logging_level=logging.ERROR, **job)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = " ".join(str(error).split())
        if "version mismatch" in why.lower():
            raise ClusterError(
                f"the Ray cluster at {address} refuses this machine: {why}"
            ) from None
        raise ClusterError(
            f"the Ray cluster at {address} answers but refuses ({why[:200]}): check "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, and that this machine "
            f"is a node (else use {_CLIENT}host:10001)"
        ) from None
    return ray


def reach(address: str) -> None:
    """Make sure that somebody listens at the address of a cluster."""
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(
            f"'{address}' is no address of a Ray cluster: give host:port on one of its nodes, or "
            f"{_CLIENT}host:10001"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): check the address "
            "and that the head runs, or leave --ray-address out to use this machine"
        ) from None
