"""``report.html``: one file without a network, with live figures and every head's matrix."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import pandas
import vl_convert

from papa.reporting.browsed import Browsed
from papa.reporting.figures.chart import DARK, LIGHT, OF_THE_PAGE, Chart, config, csv_address
from papa.reporting.figures.drops import drop_chart, drops_over_tasks, encoders_chart
from papa.reporting.figures.headmap import head_maps
from papa.reporting.figures.heatmaps import TOP, UNSEEN, heat_maps
from papa.reporting.figures.matrices import matrix_specification
from papa.reporting.figures.scores import SPACING, score_charts
from papa.reporting.heads import COUNTED, HeadsOfEncoder
from papa.reporting.verdicts import INCONCLUSIVE, MARK, baselines_label, reason_sentence
from papa.reporting.wording import (
    NOTHING,
    axis_label,
    condition,
    fraction_headings,
    lost_label,
    metric_label,
    order_label,
    orders_matter,
    score_label,
)
from papa.reporting.written import WrittenTable
from papa.spec import StudySpec
from papa.storage.remembered import recall, remember


@dataclass(frozen=True)
class Choice:
    """An input of the page that figures listen to."""

    name: str
    label: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """Figures under one heading, which listen to its choice, if any, and tables below them, closed,
    with their notes.
    """

    heading: str
    note: str
    charts: tuple[Chart, ...]
    choice: Choice | None = None
    tables: Sequence[WrittenTable] = ()

    @property
    def identifier(self) -> str:
        """Of its heading, for links."""
        return self.heading.lower().replace(" ", "-")


def page_context(
    study: StudySpec,
    summary: pandas.DataFrame,
    heads: Sequence[HeadsOfEncoder],
    more: Sequence[Section] = (),
) -> dict[str, Any]:
    """What the page's template needs beyond what both reports show."""
    sections = [*_score_sections(study, summary), *_drop_sections(summary), *more]
    sections += _head_sections(heads)
    maps = [
        Browsed(encoder_heads, own, study)
        for encoder_heads, own in zip(heads, heat_maps(heads), strict=True)
    ]
    shown = {
        "charts": {
            chart.name: chart.specification for section in sections for chart in section.charts
        },
        "config": {"page": config(OF_THE_PAGE), "light": config(LIGHT), "dark": config(DARK)},
        "matrix": matrix_specification(),
        "matrices": [heat_map.document() for heat_map in maps],
        "top": TOP,
        "unseen": UNSEEN,
    }
    scripts = [_library(), _template("report.js")]
    return {
        "claims": [_claim(row, summary) for row in _last(_main_lines(summary)).to_dict("records")],
        "sections": sections,
        "browsed": maps,
        "shown": shown,
        "scripts": scripts,
        "style": _template("report.css"),
        "licence": _template("licence.txt"),
        "counted": COUNTED,
        "tile_orders": list(
            dict.fromkeys(scores.name for group in heads for scores in group.scores())
        ),
        "summary_csv": csv_address(summary),
        "script_hashes": [_hash(script) for script in scripts],
        "library": _library_version(),
    }


def _template(name: str) -> str:
    return (files("papa.reporting") / "templates" / name).read_text()


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed package vl-convert; to
    bundle them takes it over a second, so the script is remembered.
    """
    key = {"script": _library_version(), "bundled by": version("vl-convert-python")}
    script = recall(key)
    if not isinstance(script, str):
        # Its stub asks for a snippet; without one every library is a name of the window.
        script = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]
        remember(key, script)
    return script


def _library_version() -> str:
    return f"Vega {vl_convert.get_vega_version()}, Vega-Embed {vl_convert.get_vega_embed_version()}"


def _hash(script: str) -> str:
    """What the page's own policy allows to run: nothing but its scripts."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _main_lines(summary: pandas.DataFrame) -> pandas.DataFrame:
    """One line for each encoder and task: the study's first constants and head order."""
    first = summary.iloc[0]
    return summary[
        (summary["constants"] == first["constants"]) & (summary["order"] == first["order"])
    ]


def _last(lines: pandas.DataFrame) -> pandas.DataFrame:
    """The cells with the fewest input-dependent heads."""
    return lines[lines["fraction"] == lines["fraction"].min()]


def _claim(cell: dict[str, Any], summary: pandas.DataFrame) -> dict[str, str]:
    """One encoder on one task with the fewest input-dependent heads, by the first constants."""
    drawn = f" ({cell['constants']})" if summary["constants"].nunique() > 1 else ""
    known = cell["beats_baseline"] and pandas.notna(cell["difference"])
    lost = "difference" if pandas.isna(cell["relative_drop"]) else "relative drop"
    original = NOTHING if pandas.isna(cell["original"]) else f"{cell['original']:.3f}"
    return {
        "task": cell["task"],
        "encoder": cell["encoder"],
        "number": lost_label(cell) if known else "inconclusive",
        "verdict": "known" if known else "unknown",
        "what": f"{lost} {condition(cell['fraction'])}{drawn}" if known else _unknown(cell),
        "score": (
            f"{metric_label(cell)} {score_label(cell['mean'], cell['low'], cell['high'])}, before "
            f"{original}"
        ),
        "baselines": baselines_label(cell),
    }


def _unknown(cell: dict[str, Any]) -> str:
    return reason_sentence(cell) or "no relative drop: the study has no fraction 1"


def _score_sections(study: StudySpec, summary: pandas.DataFrame) -> list[Section]:
    spacing = Choice(
        SPACING, "Fractions", {"even": "evenly spaced", "true": "at their true distances"}
    )
    first = summary.iloc[0]
    drawn = f"Constants: {first['constants']}. "
    if orders_matter(study.fractions):
        drawn += f"Heads become constant in the order: {order_label(first['order'])}. "
    several = summary["encoder"].nunique() > 1
    own = ", word embeddings alone in each encoder's colour" if several else ""
    note = f"{drawn}Bars: 95 % intervals over seeds and examples."
    if summary["always_one_answer"].notna().any():
        note += f" Dashed: the baselines{own}."
    note += "" if summary["beats_baseline"].all() else f" {MARK} {INCONCLUSIVE}"
    sections = [
        Section("Score", note, score_charts("score", _main_lines(summary), "encoder"), spacing)
    ]
    for axis, heading, fixed in (
        ("constants", "Constants compared", "order"),
        ("order", "Head orders compared", "constants"),
    ):
        lines = summary[summary[fixed] == first[fixed]]
        if lines[axis].nunique() < 2 or (axis == "order" and not orders_matter(study.fractions)):
            continue
        name = f"encoder_of_{axis}"
        encoders = {encoder: encoder for encoder in summary["encoder"].unique()}
        choice = Choice(name, "Encoder", encoders) if several else None
        with_fixed = axis_label(fixed, first[fixed])
        what = "Head order" if axis == "constants" else "Constants"
        note = f"{what}: {with_fixed}. Every other choice is in the tables."
        sections.append(
            Section(heading, note, score_charts(axis, lines, axis, name if several else ""), choice)
        )
    return sections


def _drop_sections(summary: pandas.DataFrame) -> list[Section]:
    lines = _main_lines(summary)
    lost = lines[lines["fraction"] < 1]
    sections = []
    if lost["relative_drop"].notna().any():
        note = (
            "Against every head input-dependent: (original − score) / |original|, with the 95 % "
            "interval of differences paired by seed and example."
        )
        options = {text: text for text in reversed(fraction_headings(lost).values())}
        choice = Choice("drop_fraction", "Input-dependent", options)
        sections.append(Section("Relative drop", note, (drop_chart(lost, choice.name),), choice))
    drops = drops_over_tasks(summary)
    if len(drops.points) > 1:
        sections.append(Section("Encoders compared", drops.caption, (encoders_chart(drops),)))
    return sections


def _head_sections(heads: Sequence[HeadsOfEncoder]) -> list[Section]:
    charts = tuple(chart for group in heads for chart in head_maps(group))
    note = f"{COUNTED} The smallest become constant first."
    if any(group.lambdas for group in heads):
        note += (
            " λ says nothing at .5, where its training starts. A head has a dot where the 95 % "
            "interval of its λ over seeds leaves .5 out, and the colour of the interval's end that "
            "is nearer to .5. The 95 % are of each head alone: where no λ differs from .5, one "
            "head in twenty has a dot by chance. λ of one seed has no interval, and its colour is "
            "λ."
        )
    return [Section("Heads at a glance", note, charts)] if charts else []
