"""Several workers on one call: its own worker leads, and those that were idle when it began help.

What a crew computes must not depend on who computes which part: a helper may join late, be lost, or never come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

from papa.encoders.reference import EncoderReference


class NotInCrew(Exception):
    """A worker was asked for a part of work that it has no member for."""


@runtime_checkable
class Crew(Protocol):
    """Objects of one kind, one on each member."""

    def each(self, method: str, shared: Any, parts: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """``method(shared, part)`` of each part, spread over the members by size; results in the parts' order."""


@runtime_checkable
class Team(Protocol):
    """Who may share the work of a call."""

    def crew(self, factory: Callable[..., Any], arguments: dict[str, Any]) -> AbstractContextManager[Crew]:
        """Inside the block every member has an object ``factory(encoder=…, **arguments)``."""


class Alone:
    """A team of one, without Ray.

    Args:
        encoder: what members are made with.
    """

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    @contextmanager
    def crew(self, factory: Callable[..., Any], arguments: dict[str, Any]) -> Iterator[Crew]:
        yield _Crew(factory(encoder=self._encoder, **arguments), {})


class Together:
    """The leader of a call and its helpers.

    Args:
        encoder: the leader's.
        reference: what helpers load.
        helpers: names of their actors.
    """

    def __init__(self, encoder: Any, reference: EncoderReference, helpers: Sequence[str]) -> None:
        self._encoder = encoder
        self._reference = reference
        self._helpers = helpers

    @contextmanager
    def crew(self, factory: Callable[..., Any], arguments: dict[str, Any]) -> Iterator[Crew]:
        import ray

        actors = [ray.get_actor(name) for name in self._helpers]
        joining = {actor.join.remote(factory, self._reference, arguments): actor for actor in actors}
        try:
            yield _Crew(factory(encoder=self._encoder, **arguments), joining)
        finally:
            for actor in actors:
                actor.leave.remote()


class _Crew:
    def __init__(self, own: Any, joining: dict[Any, Any]) -> None:
        self._own = own
        self._joining = joining
        self._helpers: list[Any] = []

    def each(self, method: str, shared: Any, parts: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        self._welcome()
        members = spread(sizes, len(self._helpers) + 1)
        asked = self._ask(method, shared, parts, members)
        results = {
            number: self._own_result(method, shared, part)
            for number, (part, member) in enumerate(zip(parts, members, strict=True))
            if member == 0
        }
        for number, (helper, pending) in asked.items():
            results[number] = self._result(helper, pending, method, shared, parts[number])
        return [results[number] for number in range(len(parts))]

    def _ask(
        self, method: str, shared: Any, parts: Sequence[Any], members: Sequence[int]
    ) -> dict[int, tuple[Any, Any]]:
        """Ask helpers for their parts: part → who was asked, and what the answer will be."""
        if not any(members):
            return {}
        import ray

        # Handed over once, not with each part.
        stored = ray.put(shared)
        helpers = {number: self._helpers[member - 1] for number, member in enumerate(members) if member}
        return {
            number: (helper, helper.ask.remote(method, stored, parts[number])) for number, helper in helpers.items()
        }

    def _own_result(self, method: str, shared: Any, part: Any) -> Any:
        return getattr(self._own, method)(shared, part)

    def _result(self, helper: Any, pending: Any, method: str, shared: Any, part: Any) -> Any:
        """What a helper answers; where it is lost, it is left out from here on and its part is done here."""
        import ray

        try:
            return ray.get(pending)
        except ray.exceptions.RayActorError:
            pass
        except ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, NotInCrew):
                raise
        self._helpers = [other for other in self._helpers if other is not helper]
        return self._own_result(method, shared, part)

    def _welcome(self) -> None:
        """Count in the helpers whose part is made by now."""
        if not self._joining:
            return
        import ray

        ready, _ = ray.wait(list(self._joining), num_returns=len(self._joining), timeout=0)
        for reference in ready:
            self._helpers.append(self._joining.pop(reference))


def spread(sizes: Sequence[int], members: int) -> list[int]:
    """Who does which part, so that all end at about the same time: the largest first, to whoever has least.

    Returns:
        Each part's member; the leader is 0.
    """
    loads, chosen = [0] * members, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        chosen[number] = loads.index(min(loads))
        loads[chosen[number]] += sizes[number]
    return chosen
