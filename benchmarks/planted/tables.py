"""``python -m benchmarks.planted.tables``: write the tables of ``measured.csv`` to ``measured.md``,
and the one on averages into docs/how-to/which-method.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
from scipy.stats import bootstrap

from papa.ranking.orders import SCORING_METHODS

RESULTS = Path(__file__).with_name("measured.csv")
ALL_TABLES = Path(__file__).with_name("measured.md")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "which-method.md"
MARKER = "<!-- table of benchmarks/planted/measured.csv -->"
"""Stands in the page before and after its table."""
GROUPS = {
    "classes": "encoder's head",
    "tags": "encoder's head",
    "masked words": "encoder's head",
    "next words": "decoder",
    "embeddings": "embeddings",
}
"""What a model outputs, as a column of the page."""
NAMES = frozenset({"lambda", *SCORING_METHODS})
"""The methods of PAPA, by the names that users write."""
FEWEST_MODELS = 3
"""For an interval over models."""


def mean_with_interval(values: pandas.Series) -> str:
    """Return a mean with its 95 % bootstrap interval over models."""
    known = values.dropna().to_numpy()
    if known.size == 0:
        return "–"
    if known.size < FEWEST_MODELS or np.ptp(known) == 0:
        return f"{known.mean():.2f}"
    interval = bootstrap((known,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return f"{known.mean():.2f} ({interval.low:.2f} to {interval.high:.2f})"


def mean(values: pandas.Series, digits: int = 2) -> str:
    """Return a mean over the models in which it is known."""
    known = values.dropna()
    return f"{known.mean():.{digits}f}" if len(known) else "–"


def markdown(table: pandas.DataFrame) -> str:
    """Return a table in Markdown."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def scores_by_group(results: pandas.DataFrame) -> pandas.DataFrame:
    """Return AUROC by method and substitute, with a column for each kind of output."""
    groups = results["output"].map(GROUPS)
    rows = []
    for (method, substitute), scores in results.groupby(["method", "substitute"], sort=False):
        by_group = {
            name: mean(scores.loc[groups[scores.index] == name, "auroc"])
            for name in dict.fromkeys(GROUPS.values())
        }
        rows.append(
            {
                "method": f"`{method}`" if method in NAMES else str(method),
                "substitute": str(substitute),
                "models": str(scores["auroc"].notna().sum()),
                "AUROC": mean_with_interval(scores["auroc"]),
                **by_group,
                "coverage": mean(scores["coverage"]),
                "passes": mean(scores["passes"], digits=0),
                "seconds": mean(scores["seconds"], digits=1),
            }
        )
    return pandas.DataFrame(rows)


def scores_by_kind(results: pandas.DataFrame) -> pandas.DataFrame:
    """Return AUROC by kind of planted model and method, where others use their average
    attention.
    """
    scores = results[(results["substitute"] == "average") & results["auroc"].notna()]
    methods = list(dict.fromkeys(scores["method"]))
    rows = []
    for kind, of_kind in scores.groupby("kind", sort=False):
        by_method = {
            method.replace("_", " "): mean(of_kind.loc[of_kind["method"] == method, "auroc"])
            for method in methods
        }
        rows.append({"kind of model": str(kind), **by_method})
    return pandas.DataFrame(rows)


def all_tables(results: pandas.DataFrame) -> str:
    """Return ``measured.md``: AUROC by method and substitute, and by kind of model."""
    models = len(results[["kind", "layers", "seed"]].drop_duplicates())
    kinds = results["kind"].nunique()
    timed = len(results[results["seconds"].notna()][["kind", "layers", "seed"]].drop_duplicates())
    return (
        "# Planted models\n\n"
        "Written from measured.csv; docs/how-to/which-method.md says what the columns mean.\n"
        "EAP-IG, as captum's layer integrated gradients, takes a head's outputs from another text "
        "and attributes the divergence of answers to heads.\n"
        "An entry – has no model; a kind of which no model counts against the average has no row "
        "in the second table.\n"
        f"Seconds are of one core, and of {timed} of these models.\n\n"
        f"{models} models of {kinds} kinds:\n\n{markdown(scores_by_group(results))}\n\n"
        f"With the average as substitute, by kind of model:\n\n"
        f"{markdown(scores_by_kind(results))}\n"
    )


def page_table(results: pandas.DataFrame) -> str:
    """Return the table of the page: AUROC by method, where others use their average attention."""
    of_average = results[results["substitute"] == "average"]
    # Seconds differ by machine.
    return markdown(scores_by_group(of_average).drop(columns=["substitute", "seconds"]))


def write_tables() -> None:
    """Write ``measured.md``, and replace the table of the page."""
    results = pandas.read_csv(RESULTS)
    ALL_TABLES.write_text(all_tables(results))
    before, _, after = PAGE.read_text().split(MARKER)
    PAGE.write_text(f"{before}{MARKER}\n\n{page_table(results)}\n\n{MARKER}{after}")


if __name__ == "__main__":
    write_tables()
