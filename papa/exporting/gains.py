"""How what was timed is written: what is not gained first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from papa.reporting.wording import joined


def gained(speed: Mapping[str, Any]) -> str:
    """In one sentence, at which shapes nothing is gained, and how much at the others."""
    sure = [timing for timing in speed["timings"] if timing["low"] > 1]
    unsure = [timing for timing in speed["timings"] if not timing["low"] > 1]
    parts = []
    if unsure:
        parts.append(
            f"no sure gain at {joined(map(shape_label, unsure)) if sure else 'any size measured'}"
        )
    if sure:
        low, high = (f"{end(timing['ratio'] for timing in sure):.2f}" for end in (min, max))
        parts.append(
            f"{low if low == high else f'{low} to {high}'}× at "
            f"{'the others' if unsure else 'every size'}"
        )
    if speed["left_out"]:
        sizes = (
            shape_label({"batch": batch, "longest": longest})
            for batch, longest in speed["left_out"]
        )
        parts.append(f"not measured, for want of time: {joined(sizes)}")
    return "; ".join(parts)


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
