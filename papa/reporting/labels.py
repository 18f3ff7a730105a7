"""How numbers and names are written in tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import pandas

ORDERS = {
    "lambda": "λ ascending",
    "lambda_reversed": "λ descending",
    "first_to_last": "first layer to last",
    "last_to_first": "last layer to first",
    "random": "random",
}
METRICS = {
    "accuracy": "accuracy",
    "matthews": "Matthews",
    "f1": "F1",
    "entity_f1": "entity F1",
    "token_f1": "token F1",
    "bare_entity_f1": "bare-tag F1",
    "spearman": "Spearman",
    "negative_log_perplexity": "negative log-perplexity",
}
AXES = ("model", "task", "constants", "order", "study")
"""What tells one line of a table or figure from another; only a comparison of studies has a column ``study``."""
NOTHING = "–"


def fraction_label(fraction: float) -> str:
    """A share of heads as the paper writes it: ``1``, ``1/2``, ``1/16``, ``0``; other shares as decimals."""
    nearest = Fraction(fraction).limit_denominator(1024)
    power_of_two = nearest.denominator & (nearest.denominator - 1) == 0
    simple = power_of_two or nearest.denominator <= 12
    return str(nearest) if simple and math.isclose(nearest, fraction, abs_tol=1e-9) else f"{fraction:g}"


def score_label(mean: float, low: float = math.nan, high: float = math.nan) -> str:
    """A mean with half the width of its interval: ``0.765 ± 0.012``; one seed has no interval."""
    if math.isnan(mean):
        return NOTHING
    half = (high - low) / 2
    return f"{mean:.3f}" if math.isnan(half) else f"{mean:.3f} ± {half:.3f}"


def percent_label(share: float) -> str:
    """A share in percent with one decimal: ``3.4 %``."""
    if math.isnan(share):
        return NOTHING
    return f"{100 * share + 0.0:.1f} %".replace("-0.0 %", "0.0 %")


def order_label(order: str) -> str:
    """A head order in words."""
    return ORDERS.get(order, order)


def axis_label(axis: str, value: str) -> str:
    """A value of one of the study's axes, in words."""
    return order_label(value) if axis == "order" else str(value)


def varying(summary: pandas.DataFrame, axes: Iterable[str] = AXES) -> list[str]:
    """The axes on which the summary has more than one value."""
    return [axis for axis in present(summary, axes) if summary[axis].nunique() > 1]


def present(summary: pandas.DataFrame, axes: Iterable[str] = AXES) -> list[str]:
    """The axes that the summary has."""
    return [axis for axis in axes if axis in summary]


def fixed_caption(summary: pandas.DataFrame) -> str:
    """What all rows of the study have in common: ``all-MiniLM-L6-v2 · reviews · average · λ ascending``."""
    silent = varying(summary) if orders_matter(summary["fraction"]) else [*varying(summary), "order"]
    return " · ".join(axis_label(axis, summary[axis].iloc[0]) for axis in present(summary) if axis not in silent)


def orders_matter(fractions: Iterable[float]) -> bool:
    """Whether some heads are constant and others not; else the head order changes nothing."""
    return any(0 < fraction < 1 for fraction in fractions)


def joined(words: Iterable[str]) -> str:
    """``a, b and c``."""
    *most, last = list(words)
    return f"{', '.join(most)} and {last}" if most else last
