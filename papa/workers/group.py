"""Several workers on one call: its own worker leads, and those that were idle when it began help.

What they compute must not depend on who computes which part: a helper may join late, be lost, or
never come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from papa.encoders.reference import EncoderReference
from papa.errors import PapaError


class NoReplica(Exception):
    """A worker was asked for a part of work that it has no replica for."""


class WorkerGroup:
    """The workers of a call: the leader, which runs it, and its helpers, Ray actors by name, which
    load the same encoder by its reference; without them the leader works alone, and without Ray.
    """

    def __init__(
        self, encoder: Any, reference: EncoderReference | None = None, helpers: Sequence[str] = ()
    ) -> None:
        self._encoder = encoder
        self._reference = reference
        self._helpers = helpers

    @property
    def size(self) -> int:
        """How many workers it has."""
        return 1 + len(self._helpers)

    @contextmanager
    def replicas(
        self, factory: Callable[..., Any], arguments: dict[str, Any]
    ) -> Iterator[Replicas]:
        """Inside the block every worker of the group keeps an object ``factory(encoder=…, …)``."""
        actors = []
        if self._helpers:
            import ray

            actors = [ray.get_actor(name) for name in self._helpers]
        coming = {
            actor.make_replica.remote(factory, self._reference, arguments): actor
            for actor in actors
        }
        try:
            yield Replicas(factory(encoder=self._encoder, **arguments), coming)
        finally:
            for actor in actors:
                actor.drop_replica.remote()


class Replicas:
    """Objects of one kind, one on each worker of a group: the leader's own, and those of helpers by
    the reference to the answer that theirs is made.
    """

    def __init__(self, own: Any, coming: dict[Any, Any]) -> None:
        self.own = own
        self._coming = coming
        self._helpers: list[Any] = []

    def map(
        self, method: str, shared: Any, parts: Sequence[Any], sizes: Sequence[int]
    ) -> list[Any]:
        """``method(shared, part)`` of each part, spread over replicas by size; results in order."""
        self._add_helpers()
        workers, own = spread(sizes, len(self._helpers) + 1), getattr(self.own, method)
        pending = {}
        if any(workers):
            import ray

            # Handed over once, not with each part.
            stored, helpers = ray.put(shared), dict(enumerate(self._helpers, 1))
            pending = {
                number: (helpers[worker], helpers[worker].call_replica.remote(method, stored, part))
                for number, (part, worker) in enumerate(zip(parts, workers, strict=True))
                if worker
            }
        results = {
            number: own(shared, part) for number, part in enumerate(parts) if number not in pending
        }
        for number, (helper, answer) in pending.items():
            results[number] = self._result(helper, answer, partial(own, shared, parts[number]))
        return [results[number] for number in range(len(parts))]

    def _result(self, helper: Any, answer: Any, alone: Callable[[], Any]) -> Any:
        """What a helper answers; where it is lost, its part is done here, and it is left out."""
        import ray

        try:
            return ray.get(answer)
        except ray.exceptions.RayActorError:
            pass
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, PapaError):
                raise error.cause from None
            if not isinstance(error.cause, NoReplica):
                raise
        self._helpers = [other for other in self._helpers if other is not helper]
        return alone()

    def _add_helpers(self) -> None:
        """Count in the helpers whose replica is made by now."""
        if not self._coming:
            return
        import ray

        ready, _ = ray.wait(list(self._coming), num_returns=len(self._coming), timeout=0)
        for reference in ready:
            self._helpers.append(self._coming.pop(reference))


def spread(sizes: Sequence[int], workers: int) -> list[int]:
    """Who does which part, the leader is 0, so that all end at about the same time: the largest
    first, to whoever has least.
    """
    loads, chosen = [0] * workers, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        chosen[number] = loads.index(min(loads))
        loads[chosen[number]] += sizes[number]
    return chosen
