"""Tables between markers in docs/performance.md: what was measured, and nothing by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.measure import Measured

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def written(rows: Iterable[Measured], machine: str) -> None:
    """Put the rows and the machine they come from into the page."""
    cells = [
        [row.name, f"{row.ours:.3g} {row.unit}", f"{row.plain:.3g} {row.unit}", f"{row.ratio:.2f}", f"{row.target:.2f}"]
        for row in rows
    ]
    put("rows", f"{table(['work', 'ours', 'plain', 'ratio', 'target'], cells)}\n\n{machine}")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def put(name: str, text: str) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->``."""
    page = PAGE.read_text()
    between = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- /{name} -->)", re.DOTALL)
    assert between.search(page), f"{PAGE} has no place for '{name}'"
    PAGE.write_text(between.sub(lambda _: text, page))
