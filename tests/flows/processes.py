"""What belongs to a process that a test started: its descendants, what they listen on."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx

PATIENCE_SECONDS = 1800
"""When a process is taken for hanging; nothing that works takes so long, however busy
the machine.
"""

ENGINES = ("PREFECT_", "MLFLOW_", "RAY_")


def without_engines() -> dict[str, str]:
    """This environment without what would point the engines elsewhere."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "PREFECT_HOME" or not name.startswith(ENGINES)
    }


def descendants(root: int) -> dict[int, str]:
    """Processes below ``root``, by id, with their command lines."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    below: dict[int, str] = {}
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        below |= {pid: command_of(pid) for pid in level}
    return below


def command_of(pid: int) -> str:
    """A process's command line; empty where it is gone."""
    try:
        return (
            (Path("/proc") / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode()
            .strip()
        )
    except OSError:
        return ""


def listening(pids: set[int]) -> dict[str, set[int]]:
    """Addresses that processes accept connections on, with the ports."""
    inodes = set()
    for pid in pids:
        try:
            links = [os.readlink(path) for path in (Path("/proc") / str(pid) / "fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found: dict[str, set[int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                words = [
                    bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)
                ]
                found.setdefault(str(ipaddress.ip_address(b"".join(words))), set()).add(
                    int(port, 16)
                )
    return found


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until a condition holds; fail the test where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s: {what}"
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
