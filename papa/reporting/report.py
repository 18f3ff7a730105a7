"""A finished study as one page, with its figures as files: everything from its stored tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas
import vl_convert

from papa.reporting.answers import answers, certainty, orders_note
from papa.reporting.details import (
    REPEATED,
    corpus_table,
    corpus_warnings,
    own_heads,
    plan_sentence,
    task_table,
    unseen_table,
    versions,
)
from papa.reporting.drawing import FILE, FORMATS, PAGE, Figure, datasets
from papa.reporting.figures import (
    drop_panels,
    encoders_figure,
    head_panels,
    matrix,
    order_panels,
    score_panels,
    scores_figure,
)
from papa.reporting.heads import COUNTED, Average, head_table, pattern_table
from papa.reporting.matrices import TOP, UNSEEN, chosen_figure, paged
from papa.reporting.orders import order_table, pair_table
from papa.reporting.paper import PaperReference, comparison_table
from papa.reporting.tables import contrast_table, marks, score_tables
from papa.reporting.wording import MARK, joined, orders_matter, percent_label
from papa.reporting.written import TEXT_COLUMNS, WrittenTable
from papa.scores.drops import drops_over_tasks
from papa.scores.orders import each_way
from papa.spec import StudySpec
from papa.spec.cells import Cell
from papa.spec.document import write_yaml
from papa.spec.orders import Head, needs_lambda
from papa.storage.atomic import write_atomically
from papa.storage.remembered import recall, remember


@dataclass(frozen=True)
class Findings:
    """What a page shows of a study: its stored tables (docs/results.md), and what its
    manifest says.

    Attributes:
        orders: pairs of head orders, and each order's score, where there are several.
        agreement: of λ's seeds, by encoder and task.
        texts: what a corpus says of itself, by task.
        constant_heads: of each cell; None where each seed has others.
    """

    study: StudySpec
    results: pandas.DataFrame
    summary: pandas.DataFrame
    heads: pandas.DataFrame
    orders: tuple[pandas.DataFrame, pandas.DataFrame] | None = None
    averages: Sequence[Average] = ()
    agreement: Sequence[Mapping[str, Any]] = ()
    texts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    constant_heads: Mapping[Cell, Sequence[Head] | None] = field(default_factory=dict)
    paper: PaperReference | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """Figures under one heading, and tables below them."""

    heading: str
    note: str
    figures: Sequence[Figure] = ()
    tables: Sequence[WrittenTable] = ()
    open: bool = False

    @property
    def identifier(self) -> str:
        """Of its heading, for links."""
        return self.heading.lower().replace(" ", "-")


def write_report(folder: Path, found: Findings) -> None:
    """Write ``report.html``, and ``scores``, ``drops`` for several encoders (paper, Figure 3) and
    ``matrices`` (Figure 4) as SVG, PNG and PDF, each whole or not at all.
    """
    figures = [scores_figure(found.summary), encoders_figure(found.summary)]
    figures += [chosen_figure(one) for one in found.averages[:1]]
    for figure in filter(None, figures):
        for ending in FORMATS:
            figure.save(folder / f"{figure.name}.{ending}")
    write_atomically(folder / "report.html", page(found))


def page(found: Findings) -> str:
    """The report: one file that needs no network."""
    sections = list(_sections(found))
    figures = [figure for section in sections for figure in section.figures]
    shown = {
        "figures": {figure.name: figure.specification for figure in figures},
        "datasets": datasets(figures),
        "config": {"page": PAGE, "file": FILE},
        "matrices": paged(found.averages),
        "matrix": matrix(()),
        "top": TOP,
        "unseen": UNSEEN,
    }
    scripts = [_library(), _template("report.js")]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("papa.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    study = found.study
    return environment.get_template("report.html.j2").render(
        study=study,
        plan=plan_sentence(study, found.summary),
        answers=_answers(found),
        sections=sections,
        averages=found.averages,
        counted=COUNTED,
        warnings=[*marks(found.summary), *corpus_warnings(found.texts)],
        computed=[task_table(study), unseen_table(found.results), corpus_table(found.texts)],
        facts=_facts(found),
        ranked=orders_matter(study.fractions) and any(map(needs_lambda, study.orders)),
        specification=write_yaml(study.model_dump(mode="json")),
        text_columns=TEXT_COLUMNS,
        shown=shown,
        style=_template("report.css"),
        licence=_template("licence.txt"),
        library=_library_version(),
        scripts=scripts,
        script_hashes=[_hash(script) for script in scripts],
    )


def _answers(found: Findings) -> list[str]:
    return [
        *answers(found.summary),
        *([orders_note(found.orders[0])] if found.orders else []),
        *(f"{one['encoder']} on {one['task']}, λ: {certainty(one)}" for one in found.agreement),
        *own_heads(found.results),
    ]


def _facts(found: Findings) -> dict[str, str]:
    study = found.study
    return {
        **found.provenance,
        "Precision": f"{study.precision}, features stored in {study.features.dtype}",
        "Seeds": ", ".join(map(str, study.seeds)),
        "Versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        "Run again": REPEATED,
    }


def _sections(found: Findings) -> Iterable[Section]:
    summary, several = found.summary, found.summary["encoder"].nunique() > 1
    dagger = "" if summary["beats_baseline"].all() else f" {MARK}: inconclusive, see below."
    note = f"Bars: 95 % intervals over seeds and examples. Dashed: the baselines.{dagger}"
    tables = [*score_tables(summary), *filter(None, [contrast_table(summary)])]
    if found.paper is not None and len(found.paper.scores):
        tables.append(comparison_table(summary, found.paper.scores))
    yield Section("Score", note, score_panels(summary, "encoder"), tables, open=True)
    for axis, heading in (("constants", "Constants compared"), ("order", "Head orders compared")):
        matters = axis == "constants" or orders_matter(summary["fraction"])
        if summary[axis].nunique() > 1 and matters:
            note = "Each with the study's first choice of what else varies."
            yield Section(heading, note, score_panels(summary, axis))
    if found.orders is not None:
        pairs, scores = found.orders
        ways = each_way(pairs)
        tables = [order_table(scores, ways), pair_table(pairs)]
        yield Section("Head orders told apart", orders_note(pairs), order_panels(ways), tables)
    if drops := drop_panels(summary):
        note = (
            "Against every head input-dependent: (original − score) / |original|, with the 95 % "
            "interval of differences paired by seed and example."
        )
        yield Section("Relative drop", note, drops)
    if several and (figure := encoders_figure(summary)) is not None:
        yield Section("Encoders compared", _means_note(summary), [figure])
    if len(found.heads):
        note = f"{COUNTED} The smallest become constant first; the 95 % are of each head alone."
        yield Section("Heads at a glance", note, head_panels(found.heads))
    if found.averages:
        tables = [
            pattern_table(found.averages),
            *(_head_table(found, one) for one in found.averages),
        ]
        yield Section("Heads in numbers", COUNTED, tables=tables)


def _means_note(summary: pandas.DataFrame) -> str:
    """What the means over tasks are, by both readings of an average drop."""
    points, left_out = drops_over_tasks(summary)
    both = [
        f"{point['encoder']} {percent_label(point['relative_drop'])} and "
        f"{percent_label(point['drop_of_means'])}"
        for point in points.to_dict("records")
    ]
    rest = "".join(f" Left out: {task} ({reason})." for task, reason in left_out.items())
    return f"The mean of the tasks' drops, drawn, and the drop of their mean: {joined(both)}.{rest}"


def _head_table(found: Findings, average: Average) -> WrittenTable:
    """The heads of an encoder on a task, with the fractions at which they are constant by the first
    constants and order.
    """
    own = found.heads
    own = own[(own["encoder"] == average.encoder) & (own["task"] == average.task)]
    first = found.summary.iloc[0]
    constant: dict[Head, list[float]] = {}
    for cell, heads in found.constant_heads.items():
        line = cell.encoder, cell.task, cell.constants, cell.order
        if line == (average.encoder, average.task, first["constants"], first["order"]):
            for head in heads or ():
                constant.setdefault(head, []).append(cell.fraction)
    return head_table(average, own, constant)


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
