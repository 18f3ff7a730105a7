"""Names in messages: the ones that exist, the nearest to what was asked for first."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_MOST = 12


def nearest_first(wanted: str, existing: Iterable[str]) -> str:
    """The existing names as a message lists them, sorted by how near they are to ``wanted``; "none" for no name."""
    matcher = SequenceMatcher()
    matcher.set_seq2(wanted.lower())

    def likeness(name: str) -> float:
        matcher.set_seq1(name.lower())
        return matcher.ratio()

    names = sorted(existing, key=likeness, reverse=True)
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "none") + more
