"""Which workers are free, which are taken, and which are still to come."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from papa.errors import PapaError
from papa.workers import ray_session
from papa.workers.worker import MachineError, WorkerError

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1800.0
"""A cluster may have to bring up machines first, or another study may hold them."""


@dataclass(order=True)
class _Ticket:
    """A place in the queue for a worker; the least is served first."""

    urgency: int
    number: int
    turn: threading.Condition = field(compare=False)


@dataclass
class WorkerHandle:
    """A worker by name, and whether it was lost while it was taken."""

    name: str
    actor: Any
    lost: bool = False


class FreeWorkers:
    """Hands workers out to whoever asks, most urgent first. Thread-safe.

    Ray repeats an actor's call only on that actor, once it is placed again: on a cluster that lost
    a node it may wait for ever while other workers are idle. So a worker is handed out only after
    it answered.
    """

    def __init__(self, ray: Any, workers: list[WorkerHandle]) -> None:
        self._ray = ray
        self._lock = threading.Lock()
        self._free: list[WorkerHandle] = []
        self._taken = 0
        self._coming: dict[Any, WorkerHandle] = {}
        self._nobody_since = time.monotonic()
        self._refusal: PapaError | None = None
        self._waiting: list[_Ticket] = []
        self._numbers = itertools.count()
        for worker in workers:
            self._expect(worker)

    @contextmanager
    def taken(self, urgency: int, helpers: int = 0) -> Iterator[list[WorkerHandle]]:
        """Take the next free worker, and of the others that are idle at that moment so many helpers
        at most.
        """
        ticket = _Ticket(-urgency, next(self._numbers), threading.Condition(self._lock))
        with self._lock:
            heapq.heappush(self._waiting, ticket)
            try:
                # Only the first looks who answered: hundreds that did would keep the driver busy.
                while self._waiting[0] is not ticket or not self._look():
                    ticket.turn.wait(
                        _POLL_SECONDS if self._waiting[0] is ticket and self._coming else None
                    )
            finally:
                self._waiting.remove(ticket)
                heapq.heapify(self._waiting)
                self._call_first()
            taken = [self._free.pop() for _ in range(min(1 + helpers, len(self._free)))]
            self._taken += len(taken)
        try:
            yield taken
        finally:
            with self._lock:
                self._taken -= len(taken)
                for worker in taken:
                    if worker.lost:
                        self._expect(worker)
                    else:
                        self._free.append(worker)
                self._call_first()

    def _call_first(self) -> None:
        if self._waiting:
            self._waiting[0].turn.notify()

    def _expect(self, worker: WorkerHandle) -> None:
        """It is free once it answers."""
        worker.lost = False
        self._coming[worker.actor.ready.options(max_task_retries=-1).remote()] = worker

    def _look(self) -> bool:
        """Take in the workers that answered; whether one is free."""
        ray_session.check()
        if self._coming:
            answered, _ = self._ray.wait(
                list(self._coming), num_returns=len(self._coming), timeout=0
            )
            for answer in answered:
                self._take_in(self._coming.pop(answer), answer)
        if self._refusal is not None:
            raise self._refusal
        if self._free or self._taken:
            self._nobody_since = time.monotonic()
        elif time.monotonic() - self._nobody_since > _PATIENCE_SECONDS:
            raise WorkerError(
                f"no worker answered for {_PATIENCE_SECONDS / 60:.0f} minutes: check that the Ray "
                "cluster has free CPUs or GPUs, and run the same command again to go on"
            )
        return bool(self._free)

    def _take_in(self, worker: WorkerHandle, answer: Any) -> None:
        errors = self._ray.exceptions
        try:
            self._ray.get(answer)
        except errors.ActorDiedError as error:
            why = str(error).strip().splitlines()[-1]
            self._refusal = MachineError(
                f"a worker cannot start ({why}): install PAPA on every node of the cluster"
            )
        except errors.RayActorError:
            self._expect(worker)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, PapaError):
                raise
            self._refusal = type(error.cause)(str(error.cause))
        else:
            self._free.append(worker)
