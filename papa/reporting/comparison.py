"""Several studies side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas

from papa.reporting.columns import SUMMARY_COLUMNS
from papa.reporting.figures.scores import scores_figure
from papa.reporting.summary import LINE, summarise
from papa.storage.atomic import write_atomically


def compared(results: Mapping[str, pandas.DataFrame]) -> pandas.DataFrame:
    """The summaries of studies as one table.

    Args:
        results: each study's ``results.parquet``, by the study's name.

    Returns:
        The columns ``study`` and ``SUMMARY_COLUMNS``; rows that the studies have in common are adjacent. Each study's
        drops are relative to its own original score.
    """
    parts = [summarise(frame).assign(study=name) for name, frame in results.items()]
    whole = pandas.concat(parts, ignore_index=True)[["study", *SUMMARY_COLUMNS]]
    lines = whole.groupby(LINE, sort=False).ngroup()
    return whole.loc[lines.sort_values(kind="stable").index].reset_index(drop=True)


def write_comparison(folder: Path, comparison: pandas.DataFrame) -> None:
    """Write ``compare.csv`` and the figure ``compare`` as PNG and SVG.

    Args:
        folder: made if it does not exist.
        comparison: as ``compared`` returns it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "compare.csv", comparison.to_csv(index=False))
    replace(scores_figure(comparison), name="compare").write(folder)
