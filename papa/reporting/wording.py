"""How numbers and names are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pandas

from papa.spec.cells import order_matters
from papa.spec.orders import order_named

MARK = "†"
"""Marks drops of an encoder and task whose original score does not beat its baselines."""
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
    "own": "own metric",
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


def fraction_label(fraction: float) -> str:
    """A fraction as the paper writes it: ``1``, ``1/2``, ``1/16``, ``0``; others as decimals."""
    nearest = Fraction(fraction).limit_denominator(1024)
    power_of_two = nearest.denominator & (nearest.denominator - 1) == 0
    simple = power_of_two or nearest.denominator <= 12
    exact = math.isclose(nearest, fraction, abs_tol=1e-9)
    return str(nearest) if simple and exact else f"{fraction:g}"


def condition(fraction: float) -> str:
    """A fraction as the condition of a drop: ``with every head constant``, ``at 1/16``."""
    return "with every head constant" if fraction == 0 else f"at {fraction_label(fraction)}"


def heads_label(fraction: float, share: float) -> str:
    """A fraction and, where rounding changes it, the actual share: ``1/16 (5.6 %)``."""
    label = fraction_label(fraction)
    # Less is not visible in percent with one decimal.
    rounded = abs(share - fraction) >= 0.0005
    return f"{label} ({percent_label(share)})" if rounded else label


def shares_note(summary: pandas.DataFrame) -> str:
    """Which fractions rounding to whole heads changes, in sentences; "" where it changes none."""
    encoders: dict[str, list[str]] = {}
    for cell in summary.drop_duplicates(["encoder", "fraction"]).to_dict("records"):
        label, share = fraction_label(cell["fraction"]), cell["share_of_heads"]
        if heads_label(cell["fraction"], share) != label:
            what = f"{label} stands for {percent_label(share)} of the heads of"
            encoders.setdefault(what, []).append(cell["encoder"])
    return " ".join(f"{what} {joined(names)}." for what, names in encoders.items())


def fraction_headings(summary: pandas.DataFrame) -> dict[float, str]:
    """How the fractions are written, from 1 to 0; with the real share where all agree on it."""
    shares = summary.groupby("fraction")["share_of_heads"].unique()
    return {
        fraction: heads_label(fraction, own[0]) if len(own) == 1 else fraction_label(fraction)
        for fraction, own in reversed(list(shares.items()))
    }


def metric_label(cell: Any) -> str:
    """The metric of a cell in words; F1 with the class that it is of: ``F1 of 'equivalent'``."""
    name = METRICS.get(cell["metric"], cell["metric"])
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
    return f"{mean:z.3f} ({range_label(low, high)})"


def mean_label(cell: Any) -> str:
    """The mean score of a row with its interval."""
    return score_label(cell["mean"], cell["low"], cell["high"])


def words_label(cell: Any) -> str:
    """What word embeddings alone score, of a row."""
    columns = ("word_embeddings", "word_embeddings_low", "word_embeddings_high")
    return score_label(*(cell[column] for column in columns))


def percent_label(share: float) -> str:
    """A share in percent with one decimal: ``3.4 %``."""
    if math.isnan(share):
        return NOTHING
    return f"{100 * share + 0.0:.1f} %".replace("-0.0 %", "0.0 %")


def chance_label(share: float, by_chance: float) -> str:
    """A share in whole percent, and in brackets that of chance."""
    return f"{100 * share:.0f} % ({100 * by_chance:.0f} %)"


def drop_label(drop: float, low: float = math.nan, high: float = math.nan) -> str:
    """A relative drop with half the width of its interval: ``5.6 ± 1.3 %``."""
    half = (high - low) / 2
    if math.isnan(drop) or math.isnan(half) or half == 0:
        return percent_label(drop)
    return f"{percent_label(drop).removesuffix(' %')} ± {percent_label(half)}"


def lost_label(cell: Any) -> str:
    """The relative drop of a row; where the original comes near 0, the difference of scores."""
    if math.isnan(cell["relative_drop"]) and not math.isnan(cell["difference"]):
        ends = cell["difference_low"], cell["difference_high"]
        return f"{score_label(cell['difference'], *ends)} absolute"
    return drop_label(cell["relative_drop"], cell["drop_low"], cell["drop_high"])


def range_label(low: float, high: float, *, percent: bool = False) -> str:
    """Two ends: ``0.712 to 0.755``, ``1.2 to 8.9 %``."""
    if math.isnan(low) or math.isnan(high):
        return NOTHING
    if percent:
        return f"{percent_label(low).removesuffix(' %')} to {percent_label(high)}"
    return f"{low:z.3f} to {high:z.3f}"


def order_label(order: str) -> str:
    """A head order in words."""
    with suppress(KeyError):
        return order_named(order).label
    return order


def axis_label(axis: str, value: str) -> str:
    """A value of one of the study's axes, in words."""
    return order_label(value) if axis == "order" else str(value)


def names_of(row: Any, axes: Iterable[str]) -> dict[str, str]:
    """The values of a row on some axes, in words, by their headings."""
    return {HEADINGS[axis]: axis_label(axis, row[axis]) for axis in axes}


def varying(summary: pandas.DataFrame, axes: Iterable[str] = tuple(HEADINGS)) -> list[str]:
    """The axes on which the summary has more than one value."""
    return [axis for axis in present(summary, axes) if summary[axis].nunique() > 1]


def present(summary: pandas.DataFrame, axes: Iterable[str] = tuple(HEADINGS)) -> list[str]:
    """The axes that the summary has."""
    return [axis for axis in axes if axis in summary]


def fixed_caption(summary: pandas.DataFrame) -> str:
    """What all rows have in common: ``all-MiniLM-L6-v2 · reviews · average · λ ascending``."""
    varied = varying(summary) + ([] if orders_matter(summary["fraction"]) else ["order"])
    fixed = [axis for axis in present(summary) if axis not in varied]
    return " · ".join(names_of(summary.iloc[0], fixed).values())


def orders_matter(fractions: Iterable[float]) -> bool:
    """Whether the head order changes anything at some fraction."""
    return any(map(order_matters, fractions))


def joined(words: Iterable[str]) -> str:
    """``a, b and c``."""
    *most, last = list(words)
    return f"{', '.join(most)} and {last}" if most else last
