"""What belongs to a process that a test started: its descendants, what they listen on."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import httpx
import psutil

PATIENCE_SECONDS = 1800
"""When a process is taken for hanging; nothing that works takes so long on any machine."""


def without_engines() -> dict[str, str]:
    engines = ("PREFECT_", "MLFLOW_", "RAY_")
    names = {name for name in os.environ if not name.startswith(engines)} | {"PREFECT_HOME"}
    return {name: os.environ[name] for name in names}


def descendants(root: int) -> dict[int, str]:
    below: dict[int, str] = {}
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(root).children(recursive=True):
            below[process.pid] = ""
            with suppress(psutil.Error):
                below[process.pid] = " ".join(process.cmdline())
    return below


def start_of(pid: int) -> float | None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    return None


def listening(pids: Iterable[int]) -> dict[str, set[int]]:
    """Addresses that processes accept connections on, of loopback alone, with the ports."""
    ports: dict[str, set[int]] = {}
    for pid in pids:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    ports.setdefault(connection.laddr.ip, set()).add(connection.laddr.port)
    assert ports.keys() <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, ports
    return ports


def wait_until(
    condition: Callable[[], object],
    description: str,
    process: subprocess.Popen[str] | subprocess.Popen[bytes] | None = None,
) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {description}"
        assert process is None or process.poll() is None, f"it ended before: {description}"
        time.sleep(0.1)


def status(address: str, login: str | None = None, body: object = None) -> int:
    """The HTTP status of an address for a login ``user:password``; 0 where nobody listens."""
    auth = httpx.BasicAuth(*login.split(":")) if login else None
    try:
        return httpx.request(
            "GET" if body is None else "POST", address, json=body, auth=auth, timeout=10
        ).status_code
    except httpx.TransportError:
        return 0


def answers(address: str) -> bool:
    return status(address) == 200
