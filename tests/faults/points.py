"""Where faults strike: points in a study's life that are seen from outside, in the order in which
they come.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.flows.processes import descendants

STAGES = ("tokenise", "average", "rank", "baseline", "probe", "aggregate")


@dataclass(frozen=True)
class Seen:
    """What is seen of a running study.

    Attributes:
        pid: its process.
        lines: what it wrote to its error stream.
        store: its folder; of a store behind an address, that on this machine.
    """

    pid: int
    lines: Sequence[str]
    store: Path

    def below(self, part: str) -> list[int]:
        """Processes below it whose command line has ``part``."""
        return [pid for pid, command in descendants(self.pid).items() if part in command]


@dataclass(frozen=True)
class Point:
    """A point in a study's life.

    Attributes:
        name: what it is called in the table.
        reached: whether a study is there, or beyond.
    """

    name: str
    reached: Callable[[Seen], object]


def _line(stage: str, what: str) -> Point:
    # A step that an earlier run finished is beyond.
    pattern = re.compile(rf"{stage} · .*: ({what}|already there)")
    return Point(f"{stage} {what}", lambda seen: any(pattern.match(line) for line in seen.lines))


def _process(name: str, part: str) -> Point:
    return Point(name, lambda seen: seen.below(part))


SERVER, NODE, WORKER = "create_app", "raylet/raylet", "ray::Worker"
POINTS = (
    _process("Prefect's server starts", SERVER),
    _process("Ray starts", "gcs_server"),
    _process("a worker is up", WORKER),
    _line("tokenise", "started"),
    _line("average", "started"),
    Point("an average is stored", lambda seen: any((seen.store / "artifacts").glob("average/*/*"))),
    _line("average", "done"),
    _line("rank", "started"),
    _line("rank", "done"),
    _line("baseline", "started"),
    _line("probe", "started"),
    _line("probe", "done"),
    _line("aggregate", "started"),
    _line("aggregate", "done"),
)
NAMED = {point.name: point for point in POINTS}
ORDER = list(NAMED)


@dataclass(frozen=True)
class Fault:
    """A process killed (SIGKILL) at a point."""

    victim: str
    point: str

    def __str__(self) -> str:
        return f"{self.victim} at '{self.point}'"


def draw(seed: int, victims: Sequence[str], points: Sequence[str] = ORDER) -> list[Fault]:
    """One fault for each of ``victims``, at points that ``seed`` draws, in the order in which they
    are reached.

    A process is hurt where it can be there: no worker before Ray starts.
    """
    source = random.Random(seed)
    first = dict.fromkeys(("worker", "node", "GCS"), "a worker is up")
    faults = [
        Fault(
            victim,
            source.choice(
                [one for one in points if ORDER.index(one) >= ORDER.index(first.get(victim, one))]
            ),
        )
        for victim in victims
    ]
    return sorted(faults, key=lambda fault: ORDER.index(fault.point))
