"""Where a report's numbers come from: when, by which command, machine, code and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from papa.reporting.wording import NOTHING

REPEATED = (
    "Run again with these versions on a machine of the same kind, the study gives the same scores "
    "to the last bit, whatever the number of workers, each of which computes in one thread; other "
    "processors, GPUs and versions add up in other orders, and scores may differ by their "
    "rounding."
)


@dataclass(frozen=True)
class Provenance:
    """The run that wrote a report. It says nothing about results, so no cache key holds it.

    Attributes:
        written: when, as ISO 8601 with the time zone.
        command: the command line of the process.
        machine: operating system, processor, memory and accelerators.
        run_seconds: from the start of that process to the report; what was cached took no time.
        computing_seconds: of all steps that the results build on, whenever they ran.
        commit: of this software's checkout; "" for an installed package.
        digests: SHA-256 by what it is of: weights, tokenised texts.
    """

    written: str
    command: str
    machine: str
    run_seconds: float
    computing_seconds: float
    commit: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str]]:
        """Each fact with its name, without the digests."""
        return [
            ("Date", self.written),
            ("Command", self.command),
            ("Machine", self.machine),
            ("Duration of this run", duration_label(self.run_seconds)),
            ("Computing time of all steps", duration_label(self.computing_seconds)),
            ("Commit", self.commit or "an installed package"),
        ]


def duration_label(seconds: float) -> str:
    """``0.8 s``, ``42 s``, ``3 min 5 s``, ``2 h 14 min``."""
    if math.isnan(seconds):
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
