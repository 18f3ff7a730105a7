"""The report of a study: results, summary, figures, one page as Markdown and one as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import pandas

from papa.ranking.seeds import TrainedLambda
from papa.reporting.amounts import amounts
from papa.reporting.answers import answers
from papa.reporting.cache import CachedCell
from papa.reporting.certainty import agreement_table, certainty, stability_table, trained_on
from papa.reporting.details import (
    REPEATED,
    Provenance,
    corpus_table,
    corpus_warnings,
    own_heads,
    plan_sentence,
    task_table,
    unseen_table,
    versions,
)
from papa.reporting.figures.chart import Chart
from papa.reporting.figures.drops import drops_figure, drops_over_tasks
from papa.reporting.figures.heads import heads_figure
from papa.reporting.figures.matrices import matrices_figure
from papa.reporting.figures.scores import scores_figure
from papa.reporting.heads import HeadsOfEncoder, pattern_table
from papa.reporting.orders import FoundOrders, OrdersCompared, compare_orders, orders_note
from papa.reporting.page import page_context
from papa.reporting.paper import PaperReference, comparison_table
from papa.reporting.sections import amounts_section, cache_section, orders_section
from papa.reporting.tables import contrast_table, marks, score_tables
from papa.reporting.wording import (
    TEXT_COLUMNS,
    markdown_text,
    orders_matter,
)
from papa.spec import StudySpec
from papa.spec.document import write_yaml
from papa.spec.orders import needs_lambda
from papa.storage.atomic import write_atomically


@dataclass(frozen=True)
class Extras:
    """What the report may show beyond the scores; everything is optional. Corpora are metadata by
    the name to show, λ is by (encoder, task).
    """

    corpora: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lambdas: Mapping[tuple[str, str], TrainedLambda] = field(default_factory=dict)
    paper: PaperReference | None = None
    orders: FoundOrders = field(default_factory=dict)
    heads: Sequence[HeadsOfEncoder] = ()
    cached: Sequence[CachedCell] = ()
    provenance: Provenance | None = None


def write_report(
    folder: Path,
    study: StudySpec,
    results: pandas.DataFrame,
    summary: pandas.DataFrame,
    *,
    extras: Extras | None = None,
) -> None:
    """Write ``results.parquet``, ``summary.csv``, for a study of several head orders
    ``orders.csv``, figures as PNG and SVG, ``report.md`` and ``report.html``, each whole or not at
    all.

    The figures are ``scores``; ``drops`` for a study of several encoders (paper, Figure 3);
    ``matrices`` of the first encoder and task where extras hold heads (Figure 4), with ``heads``,
    the map of their first score, where they have one.
    """
    extras = extras or Extras()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.parquet", results.to_parquet(index=False))
    write_atomically(folder / "summary.csv", summary.to_csv(index=False))
    orders = compare_orders(results, extras.orders)
    if orders is not None:
        write_atomically(folder / "orders.csv", orders.pairs.to_csv(index=False))
    figures = _figures(summary, extras.heads)
    for figure in figures:
        figure.write(folder)
    averages = amounts(study, results, summary, extras.corpora)
    more = [
        *([orders_section(orders)] if orders else []),
        *([] if averages is None else [amounts_section(averages)]),
        *([cache_section(extras.cached)] if extras.cached else []),
    ]
    context = _context(study, results, summary, figures, orders, extras)
    tables = [*context["tables"], *chain(*(section.tables for section in more))]
    pages = {
        "report.md": context | {"tables": tables},
        "report.html": context | page_context(study, summary, extras.heads, more),
    }
    for name, shown in pages.items():
        write_atomically(folder / name, _templates().get_template(f"{name}.j2").render(shown))


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("papa.reporting"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = markdown_text
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment


def _figures(summary: pandas.DataFrame, heads: Sequence[HeadsOfEncoder]) -> list[Chart]:
    figures = [scores_figure(summary)]
    drops = drops_over_tasks(summary)
    if len(drops.points) > 1:
        figures.append(drops_figure(drops))
    for first in heads[:1]:
        figures += [heads_figure(first)] if first.scores() else []
        figures.append(matrices_figure(first))
    return figures


def _context(
    study: StudySpec,
    results: pandas.DataFrame,
    summary: pandas.DataFrame,
    figures: list[Chart],
    orders: OrdersCompared | None,
    extras: Extras,
) -> dict[str, Any]:
    contrasts = contrast_table(summary)
    tables = [*score_tables(summary), *([contrasts] if contrasts else [])]
    if extras.paper is not None and len(extras.paper.scores):
        tables.append(comparison_table(summary, extras.paper.scores))
    if extras.heads:
        tables.append(pattern_table(extras.heads))
    if extras.lambdas:
        known = extras.lambdas, study.fractions
        tables += [agreement_table(*known), stability_table(*known)]
    specification = write_yaml(study.model_dump(mode="json"))
    trained = {task.name: trained_on(task) for task in study.tasks}
    return {
        "study": study,
        "ranked": orders_matter(study.fractions) and any(map(needs_lambda, study.orders)),
        "plan": plan_sentence(study, summary),
        "answers": [
            *answers(summary),
            *([orders_note(orders)] if orders else []),
            *(
                f"{encoder} on {task}: {certainty(own, study.fractions)}{trained.get(task, '')}"
                for (encoder, task), own in extras.lambdas.items()
            ),
            *corpus_warnings(extras.corpora),
            *own_heads(results),
        ],
        "warnings": [*marks(summary), *corpus_warnings(extras.corpora)],
        "tables": tables,
        "paper_notes": extras.paper.notes if extras.paper else (),
        "figures": figures,
        "tasks": task_table(study),
        "unseen": unseen_table(results),
        "truncation": corpus_table(extras.corpora),
        "versions": versions(),
        "repeated": REPEATED,
        "provenance": extras.provenance,
        "text_columns": TEXT_COLUMNS,
        "specification": specification,
        "fence": "`" * max(3, 1 + max(map(len, re.findall("`+", specification)), default=0)),
    }
