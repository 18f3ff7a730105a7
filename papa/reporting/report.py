"""A finished study as one page, with its figures as files: everything from its stored tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas
import vl_convert
import yaml

from papa.files import write_atomically
from papa.ranking.orders import scored_by
from papa.reporting import figures, heads
from papa.reporting.answers import (
    answers,
    certainty,
    counts,
    mean_drops,
    of_text,
    orders_note,
    plan_sentence,
)
from papa.reporting.tables import by_task, comparison_table, marks, order_table, score_tables
from papa.reporting.wording import MARK, orders_matter
from papa.spec import StudySpec

_library = cache(vl_convert.javascript_bundle)
"""Vega, Vega-Lite and Vega-Embed as one script; it takes a second."""


@dataclass(frozen=True)
class Findings:
    """What a page shows of a study: its stored tables (docs/results.md), of ``orders`` pairs and
    each one's score; and what its manifest says, of ``texts`` by task.
    """

    study: StudySpec
    results: pandas.DataFrame
    summary: pandas.DataFrame
    heads: pandas.DataFrame
    orders: tuple[pandas.DataFrame, pandas.DataFrame] | None = None
    averages: Sequence[heads.Average] = ()
    agreement: Sequence[Mapping[str, Any]] = ()
    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: pandas.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    citation: str = ""


def write_report(folder: Path, found: Findings) -> None:
    """Write ``report.html``, ``table`` as CSV and LaTeX, and ``scores``, ``drops`` for several
    encoders (paper, Figure 3) and ``matrices`` (Figure 4) as SVG, PNG and PDF, each whole or not at
    all.
    """
    drawn = [figures.scores_figure(found.summary), figures.encoders_figure(found.summary)]
    drawn += [heads.chosen_figure(one) for one in found.averages[:1]]
    for figure in filter(None, drawn):
        for ending in figures.FORMATS:
            figure.save(folder / f"{figure.name}{ending}")
    for ending in ("csv", "tex"):
        by_task(found.summary).save(folder / f"table.{ending}")
    write_atomically(folder / "report.html", page(found))


def page(found: Findings) -> str:
    """The report: one file that needs no network."""
    study, summary, sections = found.study, found.summary, list(_sections(found))
    drawn = [figure for section in sections for figure in section.get("figures", ())]
    shown = {
        "figures": {figure.name: figure.specification for figure in drawn},
        "datasets": figures.datasets(drawn),
        "config": {"page": figures.PAGE, "file": figures.FILE},
        "matrices": heads.paged(found.averages),
        "matrix": heads.matrix(()),
        "top": heads.TOP,
        "unseen": heads.UNSEEN,
    }
    # Without a snippet, for which its stub asks, every library is a name of the window.
    library = _library(None)
    scripts = [library, (files("papa.reporting") / "templates" / "report.js").read_text()]
    loader = jinja2.PackageLoader("papa.reporting")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    certain = (f"{one['encoder']} on {one['task']}, λ: {certainty(one)}" for one in found.agreement)
    return environment.get_template("report.html.j2").render(
        study=study,
        plan=plan_sentence(study, summary),
        answers=[*answers(summary), *certain],
        warnings=[*marks(summary), *of_text(found.results, found.texts)],
        sections=sections,
        averages=found.averages,
        citation=found.citation,
        facts={
            **counts(found.results, found.texts),
            **found.provenance,
            "Precision": f"{study.precision}, features stored in {study.features.dtype}",
            "Seeds": ", ".join(map(str, study.probe_seeds)),
        },
        ranked=orders_matter(study.keep) and "lambda" in map(scored_by, study.orders),
        specification=yaml.safe_dump(
            study.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        ),
        shown=shown,
        style=figures.STYLE,
        scripts=scripts,
        hashes=[
            base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            for script in scripts
        ],
    )


def _sections(found: Findings) -> Iterable[dict[str, Any]]:
    """Headings with a note, and with figures, tables or both."""
    summary, tables = found.summary, score_tables(found.summary)
    if found.paper is not None and len(found.paper):
        tables.append(comparison_table(summary, found.paper))
    note = "Bars: 95 % intervals over seeds and examples. Dashed: baselines."
    note += f" {MARK}: inconclusive." if (summary["reason"] != "").any() else ""
    panels = figures.score_panels(summary)
    yield {"heading": "Score", "note": note, "figures": panels, "tables": tables}
    if drops := figures.drop_panels(summary):
        note = (
            "Against every head input-dependent, with the 95 % interval of differences paired by "
            "seed and example: (original − score) / |original|; of a loss the difference in nats, "
            f"with the ratio of perplexities. {MARK}: inconclusive."
        )
        yield {"heading": "Drop", "note": note, "figures": drops}
    if points := figures.encoders_figure(summary):
        note = " ".join(mean_drops(summary))
        yield {"heading": "Encoders compared", "note": note, "figures": [points]}
    if found.orders is not None:
        pairs, scores = found.orders
        tables, note = [order_table(scores, pairs, summary)], orders_note(pairs)
        yield {"heading": "Head orders compared", "note": note, "tables": tables}
    if len(found.heads):
        note = (
            "Layers and heads are counted from 0. The smallest become constant first; the 95 % are "
            "of each head alone."
        )
        tables, maps = [heads.pattern_table(found.averages)], heads.head_panels(found.heads)
        yield {"heading": "Heads at a glance", "note": note, "figures": maps, "tables": tables}
