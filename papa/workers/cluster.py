"""Joining a Ray cluster that somebody else runs."""

from __future__ import annotations

import os
import socket
from typing import Any

from papa.errors import PapaError

_CLIENT = "ray://"
_ANSWER_SECONDS = 5.0


class ClusterError(PapaError):
    """The Ray cluster cannot be reached or refuses."""


def join(address: str) -> Any:
    """Connect this process to the cluster as a driver; returns Ray's module.

    Args:
        address: ``host:port`` of the head where this machine is a node, or ``ray://host:port`` from anywhere.

    Raises:
        ClusterError: nobody answers there, or the cluster refuses.
    """
    host, port = _parts(address)
    try:
        socket.create_connection((host, port), _ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): "
            "check the address and that the head runs, or leave --ray-address out to use this machine"
        ) from None
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's own patience with a wrong token is 20 and 30 seconds.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "8")
    os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "2")
    import ray

    try:
        ray.init(address=address, log_to_driver=True, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        told = " ".join(str(error).split())
        if "version mismatch" in told.lower():
            raise ClusterError(f"the Ray cluster at {address} refuses this machine: {told}") from None
        raise ClusterError(
            f"the Ray cluster at {address} answers but refuses ({told[:200]}): check RAY_AUTH_MODE=token and "
            f"RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, and that this machine is a node (else use {_CLIENT}host:10001)"
        ) from None
    return ray


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(
            f"'{address}' is no address of a Ray cluster: give host:port on one of its nodes, or {_CLIENT}host:10001"
        )
    return host.strip("[]"), int(port)
