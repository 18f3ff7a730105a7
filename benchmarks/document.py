"""What was measured: ``benchmarks/latest.json``, and tables between markers in ``measured.md``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.rows import Measured

PAGE = Path(__file__).with_name("measured.md")
RECORD = PAGE.with_name("latest.json")
TITLES = (
    "work",
    "ours",
    "plain",
    "ratio",
    "95 % interval",
    "target",
    "",
    "pairs",
    "peak, GFLOP/s",
    "measured",
)


def known() -> dict[str, Measured]:
    """The rows that were measured so far, by name."""
    rows = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    return {row["name"]: Measured(**row) for row in rows}


def record(row: Measured, names: Sequence[str]) -> None:
    """Put one row into the record and the page; the others stay as they were measured, and those
    without one of ``names``, which are in the order of the table, go.
    """
    rows = known() | {row.name: row}
    kept = [rows[name] for name in names if name in rows]
    highest = max(max(row.peaks) for row in kept)
    aside = RECORD.with_suffix(".new")
    aside.write_text(
        json.dumps({"rows": [asdict(row) for row in kept]}, indent=1, ensure_ascii=False) + "\n"
    )
    aside.replace(RECORD)
    put(
        "rows",
        table(TITLES, (cells(row, highest) for row in kept)) + f"\n\n{summary(kept, highest)}",
    )


def cells(row: Measured, highest: float) -> list[str]:
    """A line of the table; a star where the machine was busy, by the highest rate of matrix
    products it ever showed.
    """
    return [
        row.name,
        f"{row.ours:.3g} {row.unit}",
        f"{row.plain:.3g} {row.unit}",
        f"{row.ratio:.2f}",
        f"{row.low:.2f} to {row.high:.2f}",
        f"{row.target:.2f}",
        row.verdict,
        str(row.pairs),
        "{:.0f}, {:.0f}".format(*row.peaks) + " *" * row.busy(highest),
        f"{row.date}, torch {row.torch}, {row.threads} threads of {row.cores} cores",
    ]


def summary(rows: Sequence[Measured], highest: float) -> str:
    """How many rows reach their target, and how many were measured on a busy machine."""
    verdicts = [row.verdict for row in rows]
    counted = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in ("reached", "undecided", "missed")
    )
    busy = sum(row.busy(highest) for row in rows)
    return (
        f"{len(rows)} rows: {counted}. At {busy} of them (*) the machine was busy before and after."
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def put(name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->``."""
    written = PAGE.read_text()
    between = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- /{name} -->)", re.DOTALL)
    assert between.search(written), f"{PAGE} has no place for '{name}'"
    PAGE.write_text(between.sub(lambda _: text, written))
