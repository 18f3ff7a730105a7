"""The kinds of constants and their keys in a study. To add one: its function, and its name here."""

from __future__ import annotations

_AT = "papa.attention.kinds"
CONTROLS: dict[str, str] = {
    **{kind: f"{_AT}:{kind}" for kind in ("identity", "toeplitz", "zeros", "previous")},
    "next": f"{_AT}:next_slot",
    **{kind: f"{_AT}:{kind}" for kind in ("local", "fibonacci")},
}
"""Kind → what makes its matrices from S; from L·H as well, where it asks for ``heads``."""
DERIVED: dict[str, str] = {kind: f"{_AT}:{kind}" for kind in ("low_rank", "relative")}
"""Kind → what makes its matrices from the average."""
OF_DECODERS = ("streaming",)
PARAMETERS: dict[str, dict[str, int]] = {
    "local": {"window": 2},
    "low_rank": {"rank": 4, "largest": 0},
    "streaming": {"sinks": 4, "recent": 64},
}
"""Kind → its keys in a study, with their defaults."""


def parameters_of(kind: object) -> dict[str, int]:
    """The keys that a kind of constants has in a study, with their defaults."""
    return PARAMETERS.get(kind, {}) if isinstance(kind, str) else {}


def most_of(slots: int) -> dict[str, int]:
    """The largest values of the keys that slots bound."""
    return {"window": slots - 1, "rank": slots, "largest": slots**2}
