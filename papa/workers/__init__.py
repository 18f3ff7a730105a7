"""Ray actors that run a study's work, on this machine or on a cluster."""

from papa.workers.pool import WorkerPool
from papa.workers.worker import WorkerError

__all__ = ["WorkerError", "WorkerPool"]
