"""Tables of how well scores of heads find planted heads, from ``measured.csv``."""

from __future__ import annotations

import numpy as np
import pandas
from scipy.stats import bootstrap


def mean_with_interval(values: pandas.Series) -> str:
    """A mean with its 95 % bootstrap interval over models."""
    known = values.dropna().to_numpy()
    if known.size == 0:
        return "–"
    if known.size < 3 or np.ptp(known) == 0:
        return f"{known.mean():.2f}"
    interval = bootstrap((known,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return f"{known.mean():.2f} ({interval.low:.2f} to {interval.high:.2f})"


def table(results: pandas.DataFrame, columns: str) -> str:
    """AUROC by method and substitute, with a column for each value of ``columns``."""
    values = list(dict.fromkeys(results[columns]))
    lines = [
        f"| method | substitute | all | {' | '.join(values)} | coverage | passes |",
        "|" + "---|" * (len(values) + 5),
    ]
    for (method, substitute), rows in results.groupby(["method", "substitute"], sort=False):
        cells = [
            mean_with_interval(rows.loc[rows[columns] == value, "auroc"]).split(" ")[0]
            for value in values
        ]
        coverage = rows["coverage"].dropna()
        lines.append(
            f"| {method} | {substitute} | {mean_with_interval(rows['auroc'])} | "
            f"{' | '.join(cells)} | {f'{coverage.mean():.2f}' if len(coverage) else '–'} | "
            f"{rows['passes'].mean():.0f} |"
        )
    return "\n".join(lines)
