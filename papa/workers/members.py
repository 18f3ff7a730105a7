"""Which workers are free, which are taken, and which are away: not started yet, or lost and started again."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from papa.errors import PapaError
from papa.workers.machine import SiteError
from papa.workers.worker import WorkerError

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 1800.0
"""A cluster may have to bring up machines first, or another study may hold them."""


@dataclass
class Member:
    """A worker by name, and whether it was lost while it was taken."""

    name: str
    actor: Any
    lost: bool = False


class Members:
    """Hands workers out to whoever asks, most urgent first. Thread-safe.

    Ray repeats an actor's call only on that actor, once it is placed again: on a cluster that lost a node it may
    wait for ever while other workers are idle. So a worker is handed out only after it answered.

    Args:
        ray: the module, connected.
        members: all workers.
    """

    def __init__(self, ray: Any, members: list[Member]) -> None:
        self._ray = ray
        self._change = threading.Condition()
        self._free: list[Member] = []
        self._taken = 0
        self._away: dict[Any, Member] = {}
        self._nobody_since = time.monotonic()
        self._refusal: PapaError | None = None
        self._waiting: list[tuple[int, int]] = []
        self._numbers = itertools.count()
        for member in members:
            self._set_aside(member)

    @property
    def waiting(self) -> int:
        """How many wait for a worker."""
        return len(self._waiting)

    @contextmanager
    def taken(self, urgency: int, with_team: bool = False) -> Iterator[list[Member]]:
        """Take the next free worker; with a team all others that are idle at that moment as well.

        Raises:
            SiteError: a worker's machine does not fit the driver's.
            WorkerError: no worker answered for half an hour.
        """
        ticket = (-urgency, next(self._numbers))
        with self._change:
            heapq.heappush(self._waiting, ticket)
            try:
                self._look_for_the_absent()
                while not (self._free and self._waiting[0] == ticket):
                    self._change.wait(_LOOK_SECONDS if self._away else None)
                    self._look_for_the_absent()
            finally:
                self._waiting.remove(ticket)
                heapq.heapify(self._waiting)
                self._change.notify_all()
            taken = [self._free.pop()]
            if with_team:
                taken += self._free
                self._free = []
            self._taken += len(taken)
        try:
            yield taken
        finally:
            with self._change:
                self._taken -= len(taken)
                for member in taken:
                    if member.lost:
                        self._set_aside(member)
                    else:
                        self._free.append(member)
                self._change.notify_all()

    def _set_aside(self, member: Member) -> None:
        member.lost = False
        self._away[member.actor.ready.options(max_task_retries=-1).remote()] = member

    def _look_for_the_absent(self) -> None:
        """Those that answer are free."""
        if self._away:
            answered, _ = self._ray.wait(list(self._away), num_returns=len(self._away), timeout=0)
            for reference in answered:
                self._welcome(self._away.pop(reference), reference)
        if self._refusal is not None:
            raise self._refusal
        if self._free or self._taken:
            self._nobody_since = time.monotonic()
        elif time.monotonic() - self._nobody_since > _PATIENCE_SECONDS:
            raise WorkerError(
                f"no worker answered for {_PATIENCE_SECONDS / 60:.0f} minutes: "
                "check that the Ray cluster has free CPUs or GPUs, and run the same command again to go on"
            )

    def _welcome(self, member: Member, answer: Any) -> None:
        errors = self._ray.exceptions
        try:
            self._ray.get(answer)
        except errors.ActorDiedError as error:
            told = str(error).strip().splitlines()[-1]
            self._refusal = SiteError(f"a worker cannot start ({told}): install PAPA on every node of the cluster")
        except errors.RayActorError:
            self._set_aside(member)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, PapaError):
                raise
            self._refusal = type(error.cause)(str(error.cause))
        else:
            self._free.append(member)
            self._change.notify_all()
