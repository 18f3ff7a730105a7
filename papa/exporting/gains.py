"""How what was timed is written: what is not gained first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from papa.reporting.wording import joined


def gained(speed: Mapping[str, Any]) -> str:
    """In one sentence, at which shapes it is slower, at which nothing is gained, and how much at
    the others."""
    timings = speed["timings"]
    slower = [timing for timing in timings if timing["high"] < 1]
    faster = [timing for timing in timings if timing["low"] > 1]
    unsure = [timing for timing in timings if timing["low"] <= 1 <= timing["high"]]
    groups = {
        f"slower, {_span(slower)},": slower,
        "no sure gain": unsure,
        _span(faster): faster,
    }
    found = at_shapes(groups)
    if speed["left_out"]:
        sizes = (
            shape_label({"batch": batch, "longest": longest})
            for batch, longest in speed["left_out"]
        )
        found += f"; not measured, for want of time: {joined(sizes)}"
    return found


def at_shapes(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """What holds at which shapes, in one sentence; the last that holds at any, at the others."""
    *named, last = (words for words, timings in groups.items() if timings)
    if not named:
        return f"{last} at {'any' if last.startswith('no ') else 'every'} size measured"
    parts = [f"{words} at {joined(map(shape_label, groups[words]))}" for words in named]
    return "; ".join([*parts, f"{last} at the others"])


def _span(timings: Sequence[Mapping[str, Any]]) -> str:
    if not timings:
        return ""
    low, high = (f"{end(timing['ratio'] for timing in timings):.2f}" for end in (min, max))
    return f"{low if low == high else f'{low} to {high}'}×"


def measured(speed: Mapping[str, Any]) -> str:
    """How the speed was measured, in one sentence."""
    threads = f"{speed['threads']} thread{'s' if speed['threads'] > 1 else ''}"
    return (
        f"on {speed['device']} with {threads}, against the original with {speed['attention']} "
        "attention, on validation rows of like length; median ratio of pairs of runs in turn, "
        "with its 95 % interval"
    )


def shape_label(timing: Mapping[str, Any]) -> str:
    """A batch in words: ``16 texts × 40 tokens``."""
    return (
        f"{timing['batch']} text{'s' if timing['batch'] > 1 else ''} × {timing['longest']} tokens"
    )


def ratio_label(timing: Mapping[str, Any]) -> str:
    """A gain with its interval: ``1.77× (1.70 to 1.80)``."""
    return f"{timing['ratio']:.2f}× ({timing['low']:.2f} to {timing['high']:.2f})"


def timing_label(timing: Mapping[str, Any]) -> str:
    """The gain, and what the original takes."""
    return f"{ratio_label(timing)}; the original takes {1000 * timing['original_seconds']:.1f} ms"
