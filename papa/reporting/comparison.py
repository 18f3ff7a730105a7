"""Several studies side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas

from papa.reporting.columns import SUMMARY_COLUMNS, renamed
from papa.reporting.figures.scores import scores_figure
from papa.reporting.summary import LINE, contrast, measured, summarise
from papa.scores.intervals import Measured
from papa.storage.atomic import write_atomically


def compared(results: Mapping[str, pandas.DataFrame]) -> pandas.DataFrame:
    """The summaries of studies as one table.

    Returns:
        The columns ``study`` and ``SUMMARY_COLUMNS``; rows that the studies have in common are
        adjacent. Each study's drops are relative to its own original score; contrasts are with the
        first study.
    """
    results = {study: renamed(table) for study, table in results.items()}
    name, first = next(iter(results.items()))
    cells = _cells(first)
    parts = [
        _beside(name, {} if frame is first else cells, frame).assign(study=study)
        for study, frame in results.items()
    ]
    whole = pandas.concat(parts, ignore_index=True)[["study", *SUMMARY_COLUMNS]]
    lines = whole.groupby(LINE, sort=False).ngroup()
    return whole.loc[lines.sort_values(kind="stable").index].reset_index(drop=True)


def _cells(results: pandas.DataFrame) -> dict[Any, Measured]:
    """The scores of each cell, by the cell and its metric; seeds by their number in the study."""
    groups = results.groupby([*LINE, "fraction", "metric"], sort=False)
    return {key: measured(group.assign(seed=range(len(group)))) for key, group in groups}


def _beside(
    name: str, first: Mapping[Any, Measured], results: pandas.DataFrame
) -> pandas.DataFrame:
    """A study's summary with its contrasts to the same cells of the study ``name``."""
    summary, own = summarise(results), _cells(results)
    keys = list(summary[[*LINE, "fraction", "metric"]].itertuples(index=False, name=None))
    contrasts = [
        {"contrast_with": name if key in first else "", **contrast(first.get(key), own[key])}
        for key in keys
    ]
    return summary.assign(**pandas.DataFrame(contrasts, index=summary.index))


def write_comparison(folder: Path, comparison: pandas.DataFrame) -> None:
    """Write ``compare.csv`` and the figure ``compare`` as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "compare.csv", comparison.to_csv(index=False))
    replace(scores_figure(comparison), name="compare").write(folder)
