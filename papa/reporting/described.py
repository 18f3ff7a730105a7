"""Descriptions as short tables with their numbers written out, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import pandas as pd

from papa.ranking.orders import order_named
from papa.reporting.wording import NOTHING
from papa.reporting.written import WrittenTable

SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
_MEANS = "Means over heads, where a measure is of heads. ±: the 95 % interval over texts, at most."
_BEST = (
    "The share of words whose gold head is found, with its 95 % interval (Wilson), by the best "
    "head, picked in every other sentence and counted in the rest, and the reverse."
)


def described_tables(frame: pd.DataFrame) -> Iterator[WrittenTable]:
    """What descriptions are of, and a table for each, encoder and task; ``frame`` is as
    ``papa.describe`` gives it, that of a study with columns ``encoder`` and ``task``.
    """
    yield _of_texts(frame.attrs["texts"])
    columns = [name for name in ("encoder", "task") if name in frame and frame[name].nunique() > 1]
    for key, own in frame.groupby([*columns, "description"], sort=False):
        best = "best" in set(own["measure"])
        told = pd.DataFrame(_best(own) if best else _means(own)).fillna(NOTHING)
        what, note = (
            ("the best head for each relation", _BEST) if best else ("means by layer", _MEANS)
        )
        yield WrittenTable(f"{' · '.join(key)}: {what}", [*told], told.values.tolist(), note)


def _means(frame: pd.DataFrame) -> list[dict[str, str]]:
    rows: dict[Any, dict[str, str]] = {}
    frame = frame.dropna(subset="value").assign(half=(frame["high"] - frame["low"]) / 2)
    means = frame.groupby(["measure", "layer", "attention"], sort=False)[["value", "half"]].mean()
    for (measure, layer, attention), number in means.iterrows():
        row = rows.setdefault((measure, layer), {"Measure": measure, "Layer": str(layer)})
        half = "" if isnan(number["half"]) else f" ± {number['half']:.3f}"
        row[attention] = f"{number['value']:z.3f}{half}"
    return [*rows.values()]


def _best(frame: pd.DataFrame) -> list[dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    words = frame[frame["measure"] == "words"].nlargest(SHOWN, "value", keep="first")
    best = words[["of", "value"]].merge(frame[frame["measure"] == "best"], on="of")
    for one in best.to_dict("records"):
        words_found = {"Relation": one["of"], "Words": f"{one['value_x']:.0f}"}
        head = "" if one["head"] is pd.NA else f" {one['layer']}.{one['head']}"
        share = f"{one['value_y']:.2f} [{one['low']:.2f}, {one['high']:.2f}]{head}"
        rows.setdefault(one["of"], words_found)[one["attention"]] = share
    return [*rows.values()]


def _of_texts(records: list[dict[str, Any]]) -> WrittenTable:
    rows = []
    for record in records:
        heads = f"{record['constant_heads']} of {record['heads']}"
        if order := record.get("order"):
            heads += f" ({order_named(order).label}, fraction {record['fraction']})"
        named = filter(None, (record.get(key) for key in ("encoder", "task", "source")))
        rows.append(
            {
                "Descriptions": ", ".join(record["descriptions"]),
                "Corpus": " · ".join(named) or "the texts given",
                "Texts": f"{record['texts']:,}",
                "Tokens": f"{record['tokens']:,}",
                "Left out": f"{record['left_out']:,}",
                "Constant heads": heads,
            }
        )
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    return WrittenTable.of("What was looked at", rows, note)
