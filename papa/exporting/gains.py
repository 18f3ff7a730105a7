"""What was measured, in words: what is not gained first; and which form of an export to take, the
original, constant heads, int8, or both, by what each costs and gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from papa.exporting.document import ExportDocument
from papa.reporting.tables import caption, marks, score_tables
from papa.reporting.wording import (
    NOTHING,
    drop_label,
    joined,
    metric_label,
    percent_label,
    score_label,
)

if TYPE_CHECKING:
    import pandas

DROPS = (0.01, 0.02, 0.05, 0.1)
"""Relative drops of the score for which the fastest form is named."""
LOSSES = (0.01, 0.05, 0.1, 0.2)
"""Shares of the ten nearest neighbours that are lost, where no score tells of a drop."""
Forms = Mapping[str, Mapping[str, Any]]
"""Of each form its speed, fidelity and score."""
Size = tuple[int, int]
"""Texts of a batch, and tokens of each."""


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


@dataclass(frozen=True)
class Choice:
    """The forms in one runtime, torch or onnxruntime, side by side; sentences are (what, finding),
    and where nothing is gained comes first.
    """

    runtime: str
    sentences: tuple[tuple[str, str], ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def choices(document: ExportDocument) -> list[Choice]:
    """A choice for each runtime in which int8 was measured; none where it was not."""
    found = []
    for runtime, forms in _forms(document).items():
        where = "" if runtime == "torch" else f" in {runtime}"
        sentences = (
            (f"Constant heads beside int8{where}", _added(forms)),
            (f"Int8 alone{where}", gained(forms["int8"]["speed"])),
            (f"Int8 and constant heads{where}", gained(forms["both"]["speed"])),
        )
        rows = *_score_rows(forms, document.score), *_fidelity_rows(forms), *_speed_rows(forms)
        found.append(Choice(runtime, sentences, ("", "original", *forms), rows))
    return found


def _forms(document: ExportDocument) -> dict[str, Forms]:
    """The forms in each runtime in which int8 was measured: constant, int8, both."""
    speed, score = document.speed or {}, document.score
    numbers = ("mean", "low", "high", "drop_low", "drop_high")
    # The ONNX form has the hidden states of the export, so its score and embeddings.
    told = score and {**{name: score[name] for name in numbers}, "drop": score["relative_drop"]}
    return {
        runtime: {
            "constant": {"speed": timed, "fidelity": document.fidelity, "score": told},
            **timed["int8"],
        }
        for runtime, timed in (("torch", speed), ("onnxruntime", speed.get("onnx", {})))
        if "int8" in timed
    }


def _timings(form: Mapping[str, Any]) -> dict[Size, Mapping[str, Any]]:
    return {(timing["batch"], timing["longest"]): timing for timing in form["speed"]["timings"]}


def _added(forms: Forms) -> str:
    """At which sizes constant heads make int8 surely faster or slower: where the intervals lie
    apart."""
    alone, both = (_timings(forms[form]) for form in ("int8", "both"))
    groups: dict[str, list[Mapping[str, Any]]] = {
        "slower than int8 alone": [],
        "no sure gain over int8 alone": [],
        "faster than int8 alone": [],
    }
    slower, unsure, faster = groups.values()
    for size in (size for size in both if size in alone):
        apart = both[size]["low"] > alone[size]["high"], both[size]["high"] < alone[size]["low"]
        {(True, False): faster, (False, True): slower}.get(apart, unsure).append(both[size])
    return at_shapes(groups)


def advice(document: ExportDocument) -> list[tuple[str, str]]:
    """Which form in which runtime is the fastest within each budget, as (what, finding): for one
    text at a time and for the largest batch that all were measured at.

    The budget is the drop of the score; where a form has none, or the study's probe tells nothing,
    the ten nearest neighbours that embeddings keep. Both are taken at the end of their interval.
    """
    runtimes = _forms(document)
    every = [form for forms in runtimes.values() for form in forms.values()]
    sizes = sorted(set.intersection(*(set(_timings(form)) for form in every))) if every else []
    score = document.score
    if score and score["beats_baseline"] and all(form.get("score") for form in every):
        budgets, words = DROPS, "whose drop of the score is surely within"
    elif all("nearest_10" in (form["fidelity"] or {}) for form in every):
        budgets, words = LOSSES, "that surely loses no more of the ten nearest neighbours than"
    else:
        return []
    found = []
    for batch in sorted({size[0] for size in sizes[:1] + sizes[-1:]}):
        lengths = [longest for texts, longest in sizes if texts == batch]
        size = batch, lengths[len(lengths) // 2]
        fastest = _fastest(runtimes, size, budgets, scored=budgets is DROPS)
        what = "; ".join(f"{percent_label(budget)}: {form}" for form, budget in fastest.items())
        named = shape_label({"batch": batch, "longest": size[1]})
        found.append((f"Which one for {named}", f"the fastest {words} {what}"))
    return found


def _fastest(
    runtimes: Mapping[str, Forms], size: Size, budgets: Sequence[float], *, scored: bool
) -> dict[str, float]:
    """The form that takes the least time, with its milliseconds, and the least budget for which it
    does. The original needs none; a form that is not surely faster than it is left out.
    """
    candidates = list[tuple[float, float, str]]()
    for runtime, forms in runtimes.items():
        original = min(_timings(form)[size]["original_seconds"] for form in forms.values())
        candidates.append((original, 0.0, f"the original in {runtime}"))
        for name, form in forms.items():
            timing = _timings(form)[size]
            spent = (
                _numbers(form["score"], "drop_high")[0]
                if scored
                else 1 - form["fidelity"]["nearest_10"]["low"]
            )
            if timing["low"] > 1 and not math.isnan(spent):
                candidates.append((timing["exported_seconds"], spent, f"{name} in {runtime}"))
    found = dict[str, float]()
    for budget in budgets:
        seconds, _, name = min(form for form in candidates if form[1] <= budget)
        found.setdefault(f"{name} ({1000 * seconds:.1f} ms)", budget)
    return found


def _score_rows(forms: Forms, score: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    if score is None:
        return []
    scores = [form.get("score") or {} for form in forms.values()]
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


def _fidelity_rows(forms: Forms) -> list[tuple[str, ...]]:
    measures = {"nearest_10": "Ten nearest kept", "cosine": "Cosine to the original's"}
    kept = [form["fidelity"] or {} for form in forms.values()]
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


def _speed_rows(forms: Forms) -> list[tuple[str, ...]]:
    timed = [_timings(form) for form in forms.values()]
    return [
        (
            f"Speed, {shape_label(timing)}",
            f"1× ({1000 * timing['original_seconds']:.1f} ms)",
            *(ratio_label(timings[size]) if size in timings else NOTHING for timings in timed),
        )
        for size, timing in timed[0].items()
    ]


_ENCODER_ALONE = (
    "The score is of the model with its own head, and this folder holds its encoder alone: put the "
    "head on it in code, or hold the model's heads constant with papa.ablated."
)


def study_score(
    summary: pandas.DataFrame,
    *,
    precision: str,
    unseen_share: float | None,
    rows: int,
    cut: int,
    own_head: bool,
) -> dict[str, Any]:
    """What a study says of the exported cell, in numbers and as its report writes them.

    The summary's last row is the exported cell, before it the original where the study has it.
    ``cut`` texts did not fit their slots; with ``own_head`` the score is of a head of the model's
    own that is left out.
    """
    cell = summary.to_dict("records")[-1]
    rows_written = score_tables(summary)[0].rows
    cells, baselines = rows_written[: len(summary)], rows_written[len(summary) :]
    numbers = ("mean", "low", "high", "original", "relative_drop", "drop_low", "drop_high")
    return {
        "metric": metric_label(cell),
        **{name: None if math.isnan(cell[name]) else float(cell[name]) for name in numbers},
        "seeds": int(cell["seeds"]),
        "beats_baseline": bool(cell["beats_baseline"]),
        "unseen_share": unseen_share,
        "precision": precision,
        "rows": rows,
        "cut": cut,
        "written": {
            "score": cells[-1][2],
            "drop": cells[-1][3],
            "original": cells[0][2] if len(cells) > 1 else None,
            "baselines": {baseline[0]: baseline[2] for baseline in baselines},
            "notes": [
                caption(summary),
                *marks(summary),
                *([_ENCODER_ALONE] if own_head else []),
            ],
        },
    }
