"""The report of a finished study: one page, and its figures and tables as files."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import jinja2
import pandas
import vl_convert
import yaml

from papa.files import write_atomically
from papa.ranking.head_scores import LambdaAgreement
from papa.reporting import figures, heads, score_figures
from papa.reporting.order_table import order_table
from papa.reporting.redundancy import effects_table, redundancy_sentences
from papa.reporting.redundancy_figures import joint_effect_panels
from papa.reporting.reference import comparison_table
from papa.reporting.sentences import (
    certainty_sentences,
    corpus_facts,
    corpus_warnings,
    mean_drops_sentences,
    method_sentences,
    orders_note,
    plan_sentence,
    score_sentences,
    seed_warnings,
)
from papa.reporting.tables import by_task, inconclusive_sentences, score_tables
from papa.reporting.wording import WrittenTable, dagger_note
from papa.scores.order_comparison import OrderComparison
from papa.spec import StudySpec

_vega_script = cache(vl_convert.javascript_bundle)
"""Vega, Vega-Lite and Vega-Embed as one script; bundling them takes two seconds."""


@dataclass(frozen=True)
class Findings:
    """The stored tables of a study and facts of its manifest, from which its report is written.

    Attributes:
        study: The study.
        results: ``results.parquet`` (docs/results.md, as of all tables).
        summary: ``summary.csv``.
        heads: ``heads.parquet``.
        orders: The comparison of head orders; None without a second order.
        joint_effects: ``joint_effects.csv``; None if there is none.
        averages: The average attention of each encoder and task that has one.
        agreement: How much seeds agree on λ, by encoder and task.
        texts: The metadata of each corpus.
        paper: The paper's numbers (``papa.reporting.reference.read_reference``).
        provenance: When, where and from which content results were computed.
        citation: BibTeX.
    """

    study: StudySpec
    results: pandas.DataFrame
    summary: pandas.DataFrame
    heads: pandas.DataFrame
    orders: OrderComparison | None = None
    joint_effects: pandas.DataFrame | None = None
    averages: Sequence[heads.AttentionAverage] = ()
    agreement: Sequence[LambdaAgreement] = ()
    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: pandas.DataFrame | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    citation: str = ""


def write_report(folder: Path, findings: Findings) -> None:
    """Write ``report.html``, ``table`` as CSV and LaTeX, and figures as SVG, PNG and PDF, each file
    atomically: ``scores``, ``drops`` of two encoders or more (paper, Figure 3) and ``matrices``
    (Figure 4).
    """
    drawn = [
        score_figures.scores_figure(findings.summary),
        score_figures.encoders_figure(findings.summary),
    ]
    drawn += [heads.chosen_figure(average) for average in findings.averages[:1]]
    for figure in filter(None, drawn):
        svg = figure.svg()
        for suffix, convert in figures.FORMATS.items():
            write_atomically(folder / f"{figure.name}{suffix}", convert(svg))
    table = by_task(findings.summary)
    write_atomically(folder / "table.csv", table.csv)
    write_atomically(folder / "table.tex", table.latex)
    write_atomically(folder / "report.html", render_page(findings))


class Section(TypedDict):
    """A section of the page: a heading with a note, and figures, tables or both."""

    heading: str
    note: str
    figures: NotRequired[Sequence[figures.Figure]]
    tables: NotRequired[Sequence[WrittenTable]]


def render_page(findings: Findings) -> str:
    """Return the report as HTML that needs no network."""
    study = findings.study
    summary = findings.summary
    sections = list(_sections(findings))
    agreement = [
        f"{entry['encoder']} on {entry['task']}, λ: {certainty_sentences(entry)}"
        for entry in findings.agreement
    ]
    # Without a snippet (None) the bundle defines its libraries as globals of the window.
    scripts = [
        _vega_script(None),
        (files("papa.reporting") / "templates" / "report.js").read_text(),
    ]
    loader = jinja2.PackageLoader("papa.reporting")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment.get_template("report.html.j2").render(
        study=study,
        plan=plan_sentence(study, summary),
        answers=[*score_sentences(summary), *agreement],
        warnings=[
            *inconclusive_sentences(summary),
            *seed_warnings(findings.results),
            *corpus_warnings(findings.results, findings.texts),
        ],
        sections=sections,
        averages=findings.averages,
        citation=findings.citation,
        method=" ".join(method_sentences(study, findings.results)),
        facts=_facts(findings),
        specification=yaml.safe_dump(
            study.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        ),
        shown=_page_data(sections, findings.averages),
        style=figures.STYLE,
        scripts=scripts,
        hashes=[
            base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            for script in scripts
        ],
    )


def _facts(findings: Findings) -> dict[str, str]:
    """Return the page's list of facts, by heading."""
    study = findings.study
    precision: str = study.precision
    if any(task.head == "probe" for task in study.tasks):
        precision += f", features stored in {study.features.dtype}"
    return {
        **corpus_facts(findings.results, findings.texts),
        **findings.provenance,
        "Precision": precision,
        "Seeds": ", ".join(map(str, study.probe_seeds)),
    }


def _page_data(
    sections: Sequence[Section], averages: Sequence[heads.AttentionAverage]
) -> dict[str, object]:
    """Return what ``report.js`` draws, as JSON."""
    drawn = [figure for section in sections for figure in section.get("figures", ())]
    return {
        "figures": {figure.name: figure.specification for figure in drawn},
        "datasets": figures.rows_by_source(drawn),
        "config": {"page": figures.PAGE, "file": figures.FILE},
        "matrices": heads.page_matrices(averages),
        "matrix": heads.matrix_spec(()),
        "top": heads.TOP,
        "unobserved": heads.UNOBSERVED,
    }


def _sections(findings: Findings) -> Iterator[Section]:
    summary = findings.summary
    tables = score_tables(summary)
    if findings.paper is not None and len(findings.paper):
        tables.append(comparison_table(summary, findings.paper))
    note = f"Bars: 95 % intervals over seeds and examples.{dagger_note(summary)}"
    panels = score_figures.score_panels(summary)
    yield {"heading": "Score", "note": note, "figures": panels, "tables": tables}
    drops = score_figures.drop_panels(summary)
    if drops:
        note = (
            "Relative to the score with every head input-dependent: (original − score) / "
            "|original|, with the 95 % interval of differences paired by seed and example; "
            "for a loss the difference in nats and the ratio of perplexities."
            f"{dagger_note(summary)}"
        )
        yield {"heading": "Drop", "note": note, "figures": drops}
    encoders = score_figures.encoders_figure(summary)
    if encoders:
        note = " ".join(mean_drops_sentences(summary))
        yield {"heading": "Encoders compared", "note": note, "figures": [encoders]}
    if findings.orders is not None:
        yield {
            "heading": "Head orders compared",
            "note": orders_note(findings.orders.pairs),
            "tables": [order_table(findings.orders, summary)],
        }
    if findings.joint_effects is not None:
        yield {
            "heading": "Redundancy of heads",
            "note": " ".join(redundancy_sentences(findings.joint_effects)),
            "figures": joint_effect_panels(findings.joint_effects),
            "tables": [effects_table(findings.joint_effects)],
        }
    if len(findings.heads):
        yield {
            "heading": "Heads at a glance",
            "note": (
                "Layers and heads are counted from 0. Heads with the smallest scores become "
                "constant first; each 95 % interval is of one head, not adjusted for their number."
            ),
            "figures": heads.head_panels(findings.heads),
            "tables": [heads.pattern_table(findings.averages)],
        }
