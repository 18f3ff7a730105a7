"""How numbers, names and tables are written: in sentences, as Markdown, in a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas
from rich.markup import escape
from rich.table import Table

from papa.errors import SpecError
from papa.files import write_atomically
from papa.ranking.orders import order_named
from papa.scores.drops import perplexity_ratio
from papa.spec.task import LOSS

MARK = "†"
"""Marks an encoder and task of whose drops nothing can be told, such as where the original score
does not beat its baselines.
"""
METRICS = {
    "accuracy": "accuracy",
    "matthews": "Matthews",
    "f1": "F1",
    "entity_f1": "entity F1",
    "token_f1": "token F1",
    "bare_entity_f1": "bare-tag F1",
    "spearman": "Spearman",
    "cosine_spearman": "Spearman of cosine and label",
    "negative_log_perplexity": "negative log-perplexity",
    "agreement": "agreement with itself",
    "nearest_10": "ten nearest kept",
    "nearest_1": "nearest kept",
    "similarities": "Spearman of similarities",
    "cosine": "cosine to itself",
    "custom": "custom metric",
}
HEADINGS = {
    "encoder": "Encoder",
    "task": "Task",
    "constants": "Constants",
    "order": "Head order",
    "study": "Study",
}
"""What distinguishes lines of a table or figure; only comparisons have a column ``study``."""
NOTHING = "–"
_NUMBER = re.compile(r"[-+]?\d.*|–|", re.DOTALL)
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_LATEX = str.maketrans(
    {one: f"\\{one}" for one in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"±": r"$\pm$", "−": "$-$", "λ": r"$\lambda$", "Δ": r"$\Delta$", "–": "--"}
    | {MARK: r"\dag{}"}
)
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)"
    r"|^[#+=-](?=[\s#=-]|$)"  # headings, lists, rules
    r"|:(?=//)|(?<=www)\.|@(?=[\w-]+\.)"  # what GitHub makes a link without being asked
)


def fraction_label(fraction: float) -> str:
    """A fraction as the paper writes it: ``1``, ``1/2``, ``1/16``, ``0``; others as decimals."""
    nearest = Fraction(fraction).limit_denominator(1024)
    simple = nearest.denominator.bit_count() == 1 or nearest.denominator <= 12
    exact = math.isclose(nearest, fraction, abs_tol=1e-9)
    return str(nearest) if simple and exact else f"{fraction:g}"


def condition(fraction: float) -> str:
    """A fraction as the condition of a drop: ``with every head constant``, ``at 1/16``."""
    return "with every head constant" if fraction == 0 else f"at {fraction_label(fraction)}"


def fraction_headings(summary: pandas.DataFrame) -> dict[float, str]:
    """How the fractions are written, from 1 to 0; where rounding to whole heads changes one, with
    the share that all encoders agree on: ``1/16 (5.6 %)``.
    """
    labels = {}
    for fraction, shares in summary.groupby("fraction")["share_of_heads"].unique()[::-1].items():
        rounded = len(shares) == 1 and abs(shares[0] - fraction) >= 0.0005
        rest = f" ({percent_label(shares[0])})" if rounded else ""
        labels[fraction] = fraction_label(fraction) + rest
    return labels


def metric_label(cell: Any) -> str:
    """The metric of a cell in words; F1 with the class that it is of: ``F1 of 'equivalent'``."""
    own = cell["metric"].removeprefix("custom:").removeprefix("sklearn:")
    name = METRICS.get(cell["metric"], own)
    return f"{name} of '{cell['positive']}'" if cell["positive"] else name


def score_label(mean: float, low: float = math.nan, high: float = math.nan) -> str:
    """A mean with half the width of its interval: ``0.765 ± 0.012``; with its ends where the
    metric's range cut one: ``0.997 (0.990 to 1.000)``. One seed has no interval, nor has what a
    model scores against itself.
    """
    if math.isnan(mean):
        return NOTHING
    if math.isnan(high - low) or low == high:
        return f"{mean:z.3f}"
    if math.isclose(high - mean, mean - low, rel_tol=0, abs_tol=1e-3):
        return f"{mean:z.3f} ± {(high - low) / 2:.3f}"
    return f"{mean:z.3f} ({low:z.3f} to {high:z.3f})"


def mean_label(cell: Any) -> str:
    """The mean score of a row with its interval."""
    return score_label(cell["mean"], cell["low"], cell["high"])


def ends_label(column: str, cell: Any) -> str:
    """A number of a row, with the interval that other columns hold."""
    return score_label(*(cell[f"{column}{end}"] for end in ("", "_low", "_high")))


def percent_label(share: float) -> str:
    """A share in percent with one decimal: ``3.4 %``."""
    return NOTHING if math.isnan(share) else f"{100 * share:z.1f} %"


def marked(text: str, cell: Any) -> str:
    """The text about a row, with ``MARK`` where nothing can be told of its drops."""
    return f"{text} {MARK}" if cell["reason"] else text


def nats_label(nats: float) -> str:
    """A difference of losses with the ratio of perplexities: ``0.630 nats (PPL × 1.88)``."""
    return NOTHING if math.isnan(nats) else f"{nats:z.3f} nats (PPL × {perplexity_ratio(nats):.2f})"


def lost_label(cell: Any) -> str:
    """The relative drop of a row with half the width of its interval: ``5.6 ± 1.3 %``; of a loss
    the difference with the ratio of perplexities, ``0.630 ± 0.012 nats (PPL × 1.88)``; where the
    original comes near 0, the difference of scores.
    """
    drop, half = cell["relative_drop"], (cell["drop_high"] - cell["drop_low"]) / 2
    if cell["metric"] == LOSS and not math.isnan(cell["difference"]):
        with_interval = ends_label("difference", cell)
        return f"{with_interval} nats (PPL × {perplexity_ratio(cell['difference']):.2f})"
    if math.isnan(drop) and not math.isnan(cell["difference"]):
        return f"{ends_label('difference', cell)} absolute"
    return f"{100 * drop:z.1f} ± {percent_label(half)}" if half > 0 else percent_label(drop)


def order_label(order: str) -> str:
    """A head order in words."""
    return NOTHING if order == NOTHING else order_named(order).label


def names_of(row: Any, axes: Iterable[str]) -> dict[str, str]:
    """The values of a row on some axes, in words, by their headings."""
    return {HEADINGS[axis]: (order_label if axis == "order" else str)(row[axis]) for axis in axes}


def varying(summary: pandas.DataFrame, axes: Iterable[str] = tuple(HEADINGS)) -> list[str]:
    """The axes on which the summary has more than one value."""
    return [axis for axis in axes if axis in summary and summary[axis].nunique() > 1]


def fixed_caption(summary: pandas.DataFrame) -> str:
    """What all rows have in common: ``all-MiniLM-L6-v2 · reviews · average · λ ascending``."""
    varied = varying(summary) + ([] if orders_matter(summary["fraction"]) else ["order"])
    fixed = [axis for axis in HEADINGS if axis in summary and axis not in varied]
    return " · ".join(names_of(summary.iloc[0], fixed).values())


def orders_matter(fractions: Iterable[float]) -> bool:
    """Whether the head order changes anything at some fraction."""
    return any(0 < fraction < 1 for fraction in fractions)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out: the cells of each row by their heading, names first."""

    heading: str
    lines: list[dict[str, str]]
    note: str = ""

    @property
    def headings(self) -> list[str]:
        return [*self.lines[0]] if self.lines else []

    @property
    def rows(self) -> list[list[str]]:
        return [[*line.values()] for line in self.lines]

    @property
    def words(self) -> list[bool]:
        """Of each column, whether it holds words, and is aligned to the left."""
        return [not all(map(_NUMBER.fullmatch, cells)) for cells in zip(*self.rows, strict=True)]

    def save(self, path: str | Path) -> None:
        """Write it to a file that ends in ``.csv`` or, for LaTeX's package ``booktabs``, ``.tex``.

        Raises:
            SpecError: the name ends in neither.
        """
        if Path(path).suffix not in (".csv", ".tex"):
            raise SpecError(f"no table is written to {path}: give a .csv or .tex file")
        csv = pandas.DataFrame(self.lines).to_csv(index=False)
        write_atomically(Path(path), csv if Path(path).suffix == ".csv" else self.latex)

    @property
    def latex(self) -> str:
        """A ``tabular`` with the rules of ``booktabs``."""
        first, *rows = (
            " & ".join(_MINUS.sub("−", cell).translate(_LATEX) for cell in row) + r" \\"
            for row in (self.headings, *self.rows)
        )
        columns = "".join("l" if words else "r" for words in self.words)
        ruled = [r"\toprule", first, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
        return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *ruled, ""])

    @property
    def markdown(self) -> str:
        """With columns of even width."""
        columns = []
        for words, *cells in zip(self.words, self.headings, *self.rows, strict=True):
            first, *others = map(markdown_text, cells)
            width = max(3, *map(len, (first, *others)))
            rule = "-" * width if words else f"{'-' * (width - 1)}:"
            aligned = str.ljust if words else str.rjust
            columns.append([aligned(cell, width) for cell in (first, rule, *others)])
        return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))

    def __str__(self) -> str:
        return self.markdown

    _repr_markdown_ = __str__

    def terminal(self) -> Table:
        """All names in one column; intervals and answers below their numbers."""
        names = max(1, [*self.words, False].index(False))
        table = Table(title=escape(self.heading), caption=escape(self.note), show_lines=True)
        table.add_column(escape(", ".join(self.headings[:names])), overflow="fold")
        for heading in self.headings[names:]:
            table.add_column(escape(heading), justify="right", no_wrap=True)
        for row in self.rows:
            below = [
                cell.replace(" ± ", "\n±").replace("; ", "\n").replace(" (", "\n(")
                for cell in row[names:]
            ]
            table.add_row(*map(escape, (", ".join(row[:names]), *below)))
        return table


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, on one line: names come from folders and files."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))
