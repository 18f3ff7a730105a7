"""Which form of an export to take: the original, constant heads, int8, or both, by what each costs
and gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papa.exporting.document import ExportDocument
from papa.exporting.gains import gained, ratio_label, shape_label
from papa.reporting.wording import NOTHING, drop_label, joined, percent_label, score_label

BUDGETS = (0.01, 0.02, 0.05, 0.1)
"""Relative drops for which the fastest form is named."""
_WAYS = ("constant", "int8", "both")


@dataclass(frozen=True)
class Choice:
    """The forms in one runtime, side by side.

    Attributes:
        runtime: torch or onnxruntime.
        sentences: as (what, finding); where nothing is gained comes first.
        headings, rows: of the table.
    """

    runtime: str
    sentences: tuple[tuple[str, str], ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def choices(document: ExportDocument) -> list[Choice]:
    """A choice for each runtime in which int8 was measured; none where it was not."""
    speed = document.speed or {}
    found, score = [], document.score
    for runtime, timed in (("torch", speed), ("onnxruntime", speed.get("onnx", {}))):
        if "int8" in timed:
            # The ONNX form has the hidden states of the export, so its score and embeddings.
            constant = {"speed": timed, "fidelity": document.fidelity, "score": _of_study(score)}
            found.append(_choice(runtime, {"constant": constant, **timed["int8"]}, score))
    return found


def _of_study(score: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if score is None:
        return None
    numbers = ("mean", "low", "high", "drop_low", "drop_high")
    return {**{name: score[name] for name in numbers}, "drop": score["relative_drop"]}


def _choice(
    runtime: str, ways: Mapping[str, Mapping[str, Any]], score: Mapping[str, Any] | None
) -> Choice:
    where = "" if runtime == "torch" else f" in {runtime}"
    sentences = [(f"Constant heads beside int8{where}", _added(ways))]
    sentences += [
        (f"{name}{where}", gained(ways[way]["speed"]))
        for way, name in (("int8", "Int8 alone"), ("both", "Int8 and constant heads"))
    ]
    scored = all(way.get("score") for way in ways.values())
    # A probe that is no better than its baselines tells nothing of a drop.
    if score and score["beats_baseline"] and scored and (fastest := _fastest(ways)):
        sentences.append((f"Which one{where}", fastest))
    rows = [*_score_rows(ways, score), *_fidelity_rows(ways), *_speed_rows(ways)]
    return Choice(runtime, tuple(sentences), ("", "original", *_WAYS), tuple(rows))


def _timings(way: Mapping[str, Any]) -> dict[tuple[int, int], Mapping[str, Any]]:
    return {(timing["batch"], timing["longest"]): timing for timing in way["speed"]["timings"]}


def _added(ways: Mapping[str, Mapping[str, Any]]) -> str:
    """At which sizes constant heads make int8 surely faster: where the intervals lie apart."""
    alone, both = (_timings(ways[way]) for way in ("int8", "both"))
    sizes = [size for size in both if size in alone]
    unsure = [size for size in sizes if not both[size]["low"] > alone[size]["high"]]
    if not unsure:
        return "both are surely faster than int8 alone at every size"
    if len(unsure) == len(sizes):
        return "no sure gain over int8 alone at any size measured"
    named = joined(shape_label(alone[size]) for size in unsure)
    return f"no sure gain over int8 alone at {named}; both are surely faster at the others"


def _fastest(ways: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest form for each budget, at the largest size that all were measured at; "" where
    there is none."""
    timed = {name: _timings(way) for name, way in ways.items()}
    sizes = [
        size for size in timed["constant"] if all(size in timings for timings in timed.values())
    ]
    if not sizes:
        return ""
    size = max(sizes, key=math.prod)
    found: dict[str, float] = {}
    for budget in BUDGETS:
        within = [
            name
            for name, way in ways.items()
            if timed[name][size]["low"] > 1 and _numbers(way["score"], "drop_high")[0] <= budget
        ]
        ratios = {name: float(timed[name][size]["ratio"]) for name in within}
        best = max(ratios, key=ratios.__getitem__, default=None)
        found.setdefault(f"{best} ({ratios[best]:.2f}×)" if best else "the original", budget)
    where = f"the fastest at {shape_label(timed['both'][size])} whose drop is surely within"
    return f"{where} " + "; ".join(
        f"{percent_label(budget)}: {what}" for what, budget in found.items()
    )


def _score_rows(
    ways: Mapping[str, Mapping[str, Any]], score: Mapping[str, Any] | None
) -> list[tuple[str, ...]]:
    if score is None:
        return []
    scores = [way.get("score") or {} for way in ways.values()]
    drops = [
        drop_label(*_numbers(measured, "drop", "drop_low", "drop_high")) for measured in scores
    ]
    means = [score_label(*_numbers(measured, "mean", "low", "high")) for measured in scores]
    return [
        (f"Score ({score['metric']})", score["written"]["original"] or NOTHING, *means),
        ("Drop of the score", NOTHING, *drops),
    ]


def _numbers(score: Mapping[str, Any], *names: str) -> list[float]:
    """Its numbers; nan for those that are not known."""
    return [math.nan if score.get(name) is None else score[name] for name in names]


def _fidelity_rows(ways: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    measures = {"nearest_10": "Ten nearest kept", "cosine": "Cosine to the original's"}
    kept = [way["fidelity"] or {} for way in ways.values()]
    return [
        (
            words,
            "1",
            *(
                score_label(*(fidelity[name][end] for end in ("mean", "low", "high")))
                for fidelity in kept
            ),
        )
        for name, words in measures.items()
        if all(name in fidelity for fidelity in kept)
    ]


def _speed_rows(ways: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    timed = [_timings(way) for way in ways.values()]
    return [
        (
            f"Speed, {shape_label(timing)}",
            f"1× ({1000 * timing['original_seconds']:.1f} ms)",
            *(ratio_label(timings[size]) if size in timings else NOTHING for timings in timed),
        )
        for size, timing in timed[0].items()
    ]
