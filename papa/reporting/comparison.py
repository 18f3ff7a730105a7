"""Several studies side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas

from papa.reporting.columns import SUMMARY_COLUMNS
from papa.reporting.figures import png_bytes, scores_figure, svg_text
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
    figure = scores_figure(comparison)
    write_atomically(folder / "compare.csv", comparison.to_csv(index=False))
    write_atomically(folder / "compare.png", png_bytes(figure))
    write_atomically(folder / "compare.svg", svg_text(figure))
