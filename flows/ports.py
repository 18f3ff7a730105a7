"""Ports of this machine: a free one, and whether a process serves on it."""

import random
import socket
import subprocess
from contextlib import suppress

import psutil


def free_port() -> int:
    """Return a port of loopback that nobody listens on, and that neither the system nor Ray hands
    out.
    """
    while True:
        port = random.SystemRandom().randint(20_000, 32_767)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Return whether a process, or one below it, accepts connections on a port."""
    with suppress(psutil.Error):
        started = psutil.Process(process.pid)
        for member in (started, *started.children(recursive=True)):
            for connection in member.net_connections("tcp"):
                if (connection.status, connection.laddr[1:]) == (psutil.CONN_LISTEN, (port,)):
                    return True
    return False
