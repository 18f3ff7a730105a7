"""Descriptions as short tables with their numbers written out, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any

import pandas as pd

from papa.reporting.written import WrittenTable
from papa.spec.orders import order_named

SHOWN = 15
"""Relations in a table at most, the most frequent ones."""
ALIKE = 10
"""Pairs in a table at most."""
_MEANS = (
    "The mean over heads, where a measure is of heads. ±: the 95 % interval over texts; that of a "
    "mean over heads is at most so wide."
)
_BEST = (
    "The share of words whose gold head is found, with its 95 % interval over words (Wilson). The "
    "best head, direction or position is picked in every other sentence and counted in the rest, "
    "and the reverse. Layer.head: that with the most words found."
)


def described_tables(frame: pd.DataFrame) -> Iterator[WrittenTable]:
    """What descriptions are of, and tables for each, encoder and task; ``frame`` is as
    ``papa.describe`` gives it, that of a study with columns ``encoder`` and ``task``.
    """
    yield _of_texts(frame.attrs["texts"])
    columns = [name for name in ("encoder", "task") if name in frame and frame[name].nunique() > 1]
    for key, own in frame.groupby([*columns, "description"], sort=False):
        name = " · ".join(key)
        measures = set(own["measure"])
        table = _by_relation if "best" in measures else _by_layer
        yield (_pairs if "divergence" in measures else table)(name, own)


def _of_texts(records: list[dict[str, Any]]) -> WrittenTable:
    rows = []
    for record in records:
        named = filter(None, [record.get(key) for key in ("encoder", "task", "source")])
        counts = [f"{record[count]:,}" for count in ("texts", "tokens", "left_out")]
        heads = f"{record['constant_heads']} of {record['heads']}"
        if order := record.get("order"):
            heads += f" ({order_named(order).label}, fraction {record['fraction']})"
        corpus = " · ".join(named) or "the texts given"
        rows.append([", ".join(record["descriptions"]), corpus, *counts, heads])
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    headings = ["Descriptions", "Corpus", "Texts", "Tokens", "Left out", "Constant heads"]
    return WrittenTable("What was looked at", headings, rows, note)


def _by_layer(name: str, frame: pd.DataFrame) -> WrittenTable:
    frame, place = _with_half(frame.dropna(subset="value")), ["measure", "layer"]
    if "largest" in set(frame["measure"]):
        largest = frame[frame["measure"] == "largest"].sort_values("value")
        most = largest.groupby("attention").tail(1).assign(layer="most")
        frame = pd.concat([frame.astype({"layer": object}), most])
    means = frame.groupby([*place, "attention"])[["value", "half"]].mean().to_dict("index")
    attentions = list(frame["attention"].unique())
    rows = [
        [*map(str, at), *(_told(means.get((*at, of))) for of in attentions)]
        for at in frame[place].drop_duplicates().itertuples(index=False)
    ]
    headings = ["Measure", "Layer", *attentions]
    return WrittenTable(f"{name}: means by layer", headings, rows, _MEANS)


def _with_half(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(half=(frame["high"] - frame["low"]) / 2)


def _told(number: Mapping[Any, Any] | None) -> str:
    """A mean with half the width of its interval, where it has one."""
    if number is None:
        return "–"
    half = "" if isnan(number["half"]) else f" ± {number['half']:.3f}"
    return f"{number['value']:z.3f}{half}"


def _pairs(name: str, frame: pd.DataFrame) -> WrittenTable:
    """The pairs of heads whose own attention is most alike."""
    frame, pair = _with_half(frame), ["layer", "head", "of"]
    attentions = list(frame["attention"].unique())
    own = frame[(frame["measure"] == "divergence") & (frame["attention"] == attentions[0])]
    numbers = frame.set_index([*pair, "measure", "attention"]).to_dict("index")
    rows = [
        [
            f"{at.layer}.{at.head} · {at.of}",
            *(
                f"{_told(numbers[(*at, 'divergence', of)])} · "
                f"{numbers[(*at, 'cosine', of)]['value']:z.2f}"
                for of in attentions
            ),
        ]
        for at in own.nsmallest(ALIKE, "value")[pair].itertuples(index=False)
    ]
    note = (
        f"The {len(rows)} pairs with the least divergence of their own attention, as layer.head: "
        "the divergence, and the cosine of the outputs."
    )
    return WrittenTable(f"{name}: the most alike heads", ["Pair", *attentions], rows, note)


def _by_relation(name: str, frame: pd.DataFrame) -> WrittenTable:
    words = frame[frame["measure"] == "words"].set_index("of")["value"]
    best = frame[frame["measure"] == "best"].set_index(["of", "attention"])
    attentions = list(best.index.unique("attention"))
    rows = [
        [str(relation), f"{count:.0f}", *(_share(best.loc[(relation, of)]) for of in attentions)]
        for relation, count in words.nlargest(SHOWN, keep="first").items()
    ]
    headings = ["Relation", "Words", *attentions]
    return WrittenTable(f"{name}: the best head for each relation", headings, rows, _BEST)


def _share(row: pd.Series) -> str:
    """A share with its interval, and the head that it is of."""
    head = "" if row["head"] is pd.NA else f" {row['layer']}.{row['head']}"
    return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]{head}"
