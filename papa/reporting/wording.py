"""Numbers, names and tables as text: in sentences, as Markdown, in a terminal."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import pandas
from rich.markup import escape
from rich.table import Table

from papa.ranking.orders import order_named
from papa.scores.drops import perplexity_ratio
from papa.scores.summary import inconclusive_rows
from papa.spec.task import LOSS

Row: TypeAlias = Mapping[str, Any] | pandas.Series
"""A row of the summary or of ``orders.csv``: text and numbers by column (docs/results.md)."""
DAGGER = "†"
"""Marks an encoder and task whose drops are inconclusive, such as one whose original score does not
beat its baselines.
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
    "nearest_10": "ten nearest neighbours kept",
    "nearest_1": "nearest neighbour kept",
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
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"±": r"$\pm$", "−": "$-$", "λ": r"$\lambda$", "Δ": r"$\Delta$", "–": "--"}
    | {DAGGER: r"\dag{}"}
)
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)"
    r"|^[#+=-](?=[\s#=-]|$)"  # headings, lists, rules
    r"|:(?=//)|(?<=www)\.|@(?=[\w-]+\.)"  # what GitHub makes a link without being asked
)


def fraction_label(fraction: float) -> str:
    """Return a fraction as in the paper: ``1``, ``1/2``, ``1/16``, ``0``; others as decimals."""
    # Powers of two to 1/1024, and small denominators, read better as fractions.
    nearest = Fraction(fraction).limit_denominator(1024)
    simple = nearest.denominator.bit_count() == 1 or nearest.denominator <= 12
    exact = math.isclose(nearest, fraction, abs_tol=1e-9)
    return str(nearest) if simple and exact else f"{fraction:g}"


def fraction_phrase(fraction: float) -> str:
    """Return a fraction as the condition of a drop: ``with every head constant``, ``at 1/16``."""
    return "with every head constant" if fraction == 0 else f"at {fraction_label(fraction)}"


def fraction_headings(summary: pandas.DataFrame) -> dict[float, str]:
    """Return the headings of fractions, from 1 to 0. If rounding to whole heads changes one in the
    same way for all encoders, the heads are counted: ``1/16 (4 of 72)``.
    """
    labels = {}
    for fraction, rows in [*summary.groupby("fraction")][::-1]:
        share, constant = rows[["share_of_heads", "constant_heads"]].iloc[0]
        is_alike = rows[["share_of_heads", "constant_heads"]].nunique().max() == 1
        label = fraction_label(fraction)
        if is_alike and share < 1 and abs(share - fraction) >= 0.0005:
            heads = round(constant / (1 - share))
            label += f" ({heads - constant:.0f} of {heads})"
        labels[fraction] = label
    return labels


def metric_label(row: Row) -> str:
    """Return the metric of a row in words; F1 with its class: ``F1 of 'equivalent'``."""
    function_name = row["metric"].removeprefix("custom:").removeprefix("sklearn:")
    name = METRICS.get(row["metric"], function_name)
    return f"{name} of '{row['positive']}'" if row["positive"] else name


def metric_labels(summary: pandas.DataFrame) -> list[str]:
    """Return the metrics of a summary in words, each once."""
    return list(dict.fromkeys(map(metric_label, summary.to_dict("records"))))


def score_label(mean: float, low: float = math.nan, high: float = math.nan) -> str:
    """Return a mean with half the width of its interval: ``0.765 ± 0.012``; with its bounds if the
    metric's range limits one: ``0.997 (0.990 to 1.000)``. One seed has no interval, nor has the
    agreement of a model with itself.
    """
    if math.isnan(mean):
        return NOTHING
    written = f"{mean:z.3f}"
    if math.isnan(high - low) or low == high:
        return written
    if math.isclose(high - mean, mean - low, rel_tol=0, abs_tol=1e-3):
        return f"{written} ± {(high - low) / 2:.3f}"
    return f"{written} ({low:z.3f} to {high:z.3f})"


def mean_label(row: Row) -> str:
    """Return the mean score of a row with its interval."""
    return score_label(row["mean"], row["low"], row["high"])


def interval_label(column: str, row: Row) -> str:
    """Return a number of a row with the interval in the columns COLUMN_low and COLUMN_high."""
    return score_label(row[column], row[f"{column}_low"], row[f"{column}_high"])


def effect_label(column: str, row: Row) -> str:
    """Return an effect of heads with two significant digits of half its interval's width, as those
    of the heads of least effect are small: ``0.00047 ± 0.00012``, ``2.1e-07 ± 4.0e-08``.
    """
    mean = row[column]
    half = (row[f"{column}_high"] - row[f"{column}_low"]) / 2
    if not half > 0:
        return f"{mean:.3g}"
    # Rounded first, as the two digits of 0.0999 are those of 0.10.
    exponent = math.floor(math.log10(float(f"{half:.1e}")))
    number_format = f"z.{max(0, 1 - exponent)}f" if exponent > -7 else ".1e"
    return f"{mean:{number_format}} ± {half:{number_format}}"


def percent_label(share: float) -> str:
    """Return a share in percent with one decimal: ``3.4 %``."""
    return NOTHING if math.isnan(share) else f"{100 * share:z.1f} %"


def dagger_note(summary: pandas.DataFrame) -> str:
    """Return what ``DAGGER`` means if a row has it."""
    return "" if inconclusive_rows(summary).empty else f" {DAGGER}: drops are inconclusive."


def with_dagger(text: str, row: Row) -> str:
    """Return the text about a row, with ``DAGGER`` if its drops are inconclusive."""
    return f"{text} {DAGGER}" if row["reason"] else text


def nats_label(nats: float) -> str:
    """Return a difference of losses with the ratio of perplexities, ``0.630 nats (PPL × 1.88)``."""
    return NOTHING if math.isnan(nats) else f"{nats:z.3f} nats (PPL × {perplexity_ratio(nats):.2f})"


def drop_label(row: Row) -> str:
    """Return the relative drop of a row with half the width of its interval: ``5.6 ± 1.3 %``.

    Of a loss it is the difference with the ratio of perplexities, ``0.630 ± 0.012 nats (PPL ×
    1.88)``; if the original is near 0, the difference of scores.
    """
    drop = row["relative_drop"]
    half = (row["drop_high"] - row["drop_low"]) / 2
    has_difference = not math.isnan(row["difference"])
    if row["metric"] == LOSS and has_difference:
        ratio = perplexity_ratio(row["difference"])
        return f"{interval_label('difference', row)} nats (PPL × {ratio:.2f})"
    if math.isnan(drop) and has_difference:
        return f"{interval_label('difference', row)} absolute"
    return f"{100 * drop:z.1f} ± {percent_label(half)}" if half > 0 else percent_label(drop)


def order_label(order: str) -> str:
    """Return a head order in words."""
    return NOTHING if order == NOTHING else order_named(order).label


def axis_labels(row: Row, axes: Iterable[str]) -> dict[str, str]:
    """Return the values of a row on these axes, in words, by their headings."""
    return {
        HEADINGS[axis]: order_label(row[axis]) if axis == "order" else str(row[axis])
        for axis in axes
    }


def varying_axes(summary: pandas.DataFrame, axes: Iterable[str] = tuple(HEADINGS)) -> list[str]:
    """Return the axes on which the summary has more than one value."""
    return [axis for axis in axes if axis in summary and summary[axis].nunique() > 1]


def fixed_caption(summary: pandas.DataFrame) -> str:
    """Return what all rows share: ``all-MiniLM-L6-v2 · reviews · average · smallest λ first``."""
    omitted = varying_axes(summary)
    if not orders_matter(summary["fraction"]):
        omitted.append("order")
    fixed = [axis for axis in HEADINGS if axis in summary and axis not in omitted]
    return " · ".join(axis_labels(summary.iloc[0], fixed).values())


def orders_matter(fractions: Iterable[float]) -> bool:
    """Return whether the head order changes anything: whether heads differ at some fraction."""
    return any(0 < fraction < 1 for fraction in fractions)


@dataclass(frozen=True)
class WrittenTable:
    """A table with its numbers written out: the cells of each row by their heading, names first."""

    heading: str
    records: list[dict[str, str]]
    note: str = ""

    @property
    def headings(self) -> list[str]:
        return [*self.records[0]] if self.records else []

    @property
    def rows(self) -> list[list[str]]:
        return [[*record.values()] for record in self.records]

    @property
    def is_text_column(self) -> list[bool]:
        """Whether each column holds text, and so is aligned to the left: names always do, though
        they may look like numbers ("7b-model").
        """
        names = {*HEADINGS.values()}
        return [
            heading in names or not all(map(_NUMBER.fullmatch, cells))
            for heading, *cells in zip(self.headings, *self.rows, strict=True)
        ]

    @property
    def csv(self) -> str:
        """The table as CSV."""
        csv: str = pandas.DataFrame(self.records).to_csv(index=False)
        return csv

    @property
    def latex(self) -> str:
        """The table as a ``tabular`` with the rules of ``booktabs``."""

        def latex_text(text: str) -> str:
            return _MINUS.sub("−", text).translate(_LATEX)

        frame = pandas.DataFrame(self.records).map(latex_text).rename(columns=latex_text)
        columns = "".join("l" if words else "r" for words in self.is_text_column)
        return frame.to_latex(index=False, escape=False, column_format=columns)

    @property
    def markdown(self) -> str:
        """The table in Markdown, with columns of even width."""
        columns = []
        for words, *cells in zip(self.is_text_column, self.headings, *self.rows, strict=True):
            heading, *values = map(markdown_text, cells)
            # Three signs at least, as some readers of Markdown need for a rule.
            width = max(3, *map(len, (heading, *values)))
            rule = "-" * width if words else f"{'-' * (width - 1)}:"
            align = str.ljust if words else str.rjust
            columns.append([align(cell, width) for cell in (heading, rule, *values)])
        return "".join(f"| {' | '.join(row)} |\n" for row in zip(*columns, strict=True))

    @property
    def titled_markdown(self) -> str:
        """The heading, the table and its note in Markdown, with blank lines between them."""
        note = f"\n{markdown_text(self.note)}\n" if self.note else ""
        return f"{markdown_text(self.heading)}\n\n{self.markdown}{note}"

    def __str__(self) -> str:
        return self.markdown

    _repr_markdown_ = __str__

    def terminal(self) -> Table:
        """Return the table for a terminal: all names in one column; intervals and answers below
        their numbers.
        """
        name_columns = max(1, [*self.is_text_column, False].index(False))
        table = Table(title=escape(self.heading), caption=escape(self.note), show_lines=True)
        table.add_column(escape(", ".join(self.headings[:name_columns])), overflow="fold")
        for heading in self.headings[name_columns:]:
            table.add_column(escape(heading), justify="right", overflow="fold")
        for row in self.rows:
            numbers = [
                cell.replace(" ± ", "\n±").replace("; ", "\n").replace(" (", "\n(")
                for cell in row[name_columns:]
            ]
            table.add_row(*map(escape, (", ".join(row[:name_columns]), *numbers)))
        return table


def markdown_text(text: str) -> str:
    """Escape text for Markdown, on one line: names come from folders and files."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))


def number_label(value: float | None, format_spec: str) -> str:
    """Return a number in a format, or a dash where there is none."""
    return NOTHING if pandas.isna(value) else format(value, format_spec)
