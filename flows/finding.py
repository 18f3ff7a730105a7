"""What ``papa doctor`` says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal[
    "ok", "low", "unsupported", "missing", "unusable", "refused", "not reachable", "not configured"
]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: it, in a word or two.
        state: how it is.
        found: what was seen; no password and no token.
        advice: what to do where it is not well.
        broken: whether a study that is started here and now fails by it.
    """

    what: str
    state: State
    found: str
    advice: str = ""
    broken: bool = False
