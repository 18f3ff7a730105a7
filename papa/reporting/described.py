"""Descriptions of heads as tables (``papa.describe``)."""

import math
from collections.abc import Iterator

import pandas

from papa.reporting.wording import NOTHING, WrittenTable
from papa.spec.orders import head_name

MOST_RELATIONS = 15
"""The most relations in a table: the frequent ones."""
_MEANS = (
    "Means over heads for measures of heads. ±: mean half-width of their 95 % intervals over "
    "texts; the mean's own interval is no wider."
)
_BEST = (
    "Share of words whose gold head is found, with its 95 % interval (Wilson), for the best "
    "head, chosen on every second sentence and counted on the others, and vice versa."
)


def described_tables(frame: pandas.DataFrame) -> Iterator[WrittenTable]:
    """Yield a table of the texts in a frame of ``papa.describe``, then one for each description."""
    (record,) = frame.attrs["texts"]
    row = {
        "Descriptions": ", ".join(record["descriptions"]),
        "Corpus": record.get("source", "texts of the call"),
        "Texts": f"{record['texts']:,}",
        "Tokens": f"{record['tokens']:,}",
        "Left out": f"{record['left_out']:,}",
        "Constant heads": f"{record['constant_heads']} of {record['heads']}",
    }
    note = "Left out: sentences with more tokens than fit. Constant heads: in the replaced model."
    yield WrittenTable("Texts", [row], note)
    for name, description in frame.groupby("description", sort=False):
        if "best" in set(description["measure"]):
            title = "the best head for each relation"
            table_rows = _best_heads(description)
            note = _BEST
        else:
            title = "means by layer"
            table_rows = _layer_means(description)
            note = _MEANS
        # Rows may lack columns that others have.
        records = pandas.DataFrame(table_rows).fillna(NOTHING).to_dict("records")
        yield WrittenTable(f"{name}: {title}", records, note)


def _layer_means(frame: pandas.DataFrame) -> list[dict[str, str]]:
    """Return a row a measure and layer, with a column for each attention."""
    rows: dict[tuple[str, int], dict[str, str]] = {}
    frame = frame.dropna(subset="value").assign(half=(frame["high"] - frame["low"]) / 2)
    means = frame.groupby(["measure", "layer", "attention"], sort=False)[["value", "half"]].mean()
    for (measure, layer, attention), number in means.iterrows():
        row = rows.setdefault((measure, layer), {"Measure": measure, "Layer": str(layer)})
        half = "" if math.isnan(number["half"]) else f" ± {number['half']:.3f}"
        row[attention] = f"{number['value']:z.3f}{half}"
    return [*rows.values()]


def _best_heads(frame: pandas.DataFrame) -> list[dict[str, str]]:
    """Return a row for each of the most frequent relations, with a column for each attention."""
    rows: dict[str, dict[str, str]] = {}
    words = frame[frame["measure"] == "words"].nlargest(MOST_RELATIONS, "value", keep="first")
    words = words[["of", "value"]].rename(columns={"value": "words"})
    best = words.merge(frame[frame["measure"] == "best"], on="of")
    for record in best.to_dict("records"):
        relation = {"Relation": record["of"], "Words": f"{record['words']:.0f}"}
        head = (
            "" if record["head"] is pandas.NA else f" {head_name(record['layer'], record['head'])}"
        )
        share = f"{record['value']:.2f} [{record['low']:.2f}, {record['high']:.2f}]{head}"
        rows.setdefault(record["of"], relation)[record["attention"]] = share
    return [*rows.values()]
