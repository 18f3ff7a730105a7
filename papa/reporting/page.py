"""``report.html``: one file without a network, with live figures and every head's matrix."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import pandas
import vl_convert

from papa.reporting.certainty import certainty
from papa.reporting.figures.chart import DARK, LIGHT, OF_THE_PAGE, config, csv_address
from papa.reporting.figures.matrices import (
    TOP,
    UNSEEN,
    HeatMaps,
    heat_maps,
    image_address,
    matrix_specification,
)
from papa.reporting.heads import COUNTED, NO_PATTERN, HeadsOfEncoder
from papa.reporting.sections import Section, drop_sections, head_sections, score_sections
from papa.reporting.summary import main_lines
from papa.reporting.tables import baselines_label, reason_sentence
from papa.reporting.wording import NOTHING, condition, lost_label, mean_label, metric_label
from papa.spec import StudySpec
from papa.storage.remembered import recall, remember


def page_context(
    study: StudySpec,
    summary: pandas.DataFrame,
    heads: Sequence[HeadsOfEncoder],
    more: Sequence[Section] = (),
) -> dict[str, Any]:
    """What the page's template needs beyond what both reports show."""
    sections = [*score_sections(study, summary), *drop_sections(summary), *more]
    sections += head_sections(heads)
    maps = [browsed(group, own, study) for group, own in zip(heads, heat_maps(heads), strict=True)]
    shown = {
        "charts": {
            chart.name: chart.specification for section in sections for chart in section.charts
        },
        "config": {"page": config(OF_THE_PAGE), "light": config(LIGHT), "dark": config(DARK)},
        "matrix": matrix_specification(),
        "matrices": [one["document"] for one in maps],
        "top": TOP,
        "unseen": UNSEEN,
    }
    scripts = [_library(), _template("report.js")]
    lines = main_lines(summary)
    last = lines[lines["fraction"] == lines["fraction"].min()]
    return {
        "claims": [_claim(row, summary) for row in last.to_dict("records")],
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


def _claim(cell: dict[str, Any], summary: pandas.DataFrame) -> dict[str, str]:
    """One encoder on one task with the fewest input-dependent heads, by the first constants."""
    drawn = f" ({cell['constants']})" if summary["constants"].nunique() > 1 else ""
    known = cell["beats_baseline"] and pandas.notna(cell["difference"])
    lost = "difference" if pandas.isna(cell["relative_drop"]) else "relative drop"
    original = NOTHING if pandas.isna(cell["original"]) else f"{cell['original']:.3f}"
    unknown = reason_sentence(cell) or "no relative drop: the study has no fraction 1"
    return {
        "task": cell["task"],
        "encoder": cell["encoder"],
        "number": lost_label(cell) if known else "inconclusive",
        "verdict": "known" if known else "unknown",
        "what": f"{lost} {condition(cell['fraction'])}{drawn}" if known else unknown,
        "score": f"{metric_label(cell)} {mean_label(cell)}, before {original}",
        "baselines": baselines_label(cell),
    }


def browsed(heads: HeadsOfEncoder, maps: HeatMaps, study: StudySpec) -> dict[str, Any]:
    """The heads of one encoder on one task, as the template and the page's script take them: its
    table of heads, written out, and what is shown of each head, layer by layer.
    """
    title, scores = f"{heads.encoder} · {heads.task}", heads.scores()
    table = heads.table(study.fractions)
    columns = _columns(heads, table)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    first_score = scores[0].name if scores else ""
    shown = [_head(dict(zip(columns, row, strict=True)), maps, first_score) for row in rows]
    per_layer = heads.matrices.shape[1]
    return {
        "title": title,
        "name": f"{heads.encoder}-{heads.task}",
        "certainty": certainty(heads.lambdas, study.fractions) if heads.lambdas else "",
        # How many slots one row stands for at most.
        "joined_slots": max((end - start for start, end in maps.ranges), default=1),
        # Where [CLS] and [SEP] are, in percent of the image's side.
        "marks": [100 * (row + 0.5) / len(maps.ranges) for row in maps.special],
        "csv": csv_address(table),
        "first_score": first_score,
        "headings": list(columns),
        "rows": rows,
        "layers": [shown[at : at + per_layer] for at in range(0, len(shown), per_layer)],
        # What the script needs to show a head's matrix in large, but for the images.
        "document": {
            "title": title,
            "name": f"{heads.encoder}-{heads.task}",
            "labels": maps.labels,
            "special": list(maps.special),
            "largest": maps.largest.astype(float).flatten().tolist(),
            "facts": [head["facts"] for head in shown],
            "scores": {score.name: score.values.flatten().tolist() for score in scores},
        },
    }


def _columns(heads: HeadsOfEncoder, table: pandas.DataFrame) -> dict[str, list[str]]:
    """By heading: place, scores, each with its interval, pattern, and what orders say."""
    texts = {name: [str(value) for value in column] for name, column in table.items()}
    of_orders = [name for name in texts if name.startswith(("place, ", "constant at, "))]
    return {
        **{name.capitalize(): texts[name] for name in ("layer", "head")},
        **{score.name: score.written() for score in heads.scores()},
        "Pattern": texts["pattern"],
        **{name[0].upper() + name[1:]: texts[name] for name in of_orders},
    }


def _head(facts: dict[str, str], maps: HeatMaps, first_score: str) -> dict[str, Any]:
    layer, head = int(facts.pop("Layer")), int(facts.pop("Head"))
    score = facts[first_score].partition(" ")[0] if first_score else ""
    return {
        "layer": layer,
        "head": head,
        "image": image_address(maps.levels[layer, head]),
        "score": score,
        "short": re.sub(r"^(-?)0\.", r"\1.", score),
        "pattern": facts["Pattern"],
        "plain": facts["Pattern"] == NO_PATTERN,
        "facts": facts,
    }
