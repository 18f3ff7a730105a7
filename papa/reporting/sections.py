"""Sections of the report that only some studies have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas

from papa.descriptions.told import told
from papa.reporting.amounts import AMOUNTS_NOTE, amounts_table
from papa.reporting.cache import CACHE_NOTE, CachedCell, cache_table
from papa.reporting.figures.alike import ALIKE_NOTE, alike_charts
from papa.reporting.figures.amounts import amount_charts
from papa.reporting.figures.orders import order_charts
from papa.reporting.order_tables import (
    COST_NOTE,
    LIKENESS_NOTE,
    order_rows,
    orders_note,
    pair_rows,
)
from papa.reporting.orders import OrdersCompared
from papa.reporting.page import Section
from papa.reporting.tables import WrittenTable, markdown_table


@dataclass(frozen=True)
class NotedTable:
    """A table with its numbers written out, and how to read it."""

    heading: str
    note: str
    headings: list[str]
    rows: list[list[str]]

    @property
    def markdown(self) -> str:
        return markdown_table(self.headings, self.rows)


def orders_section(orders: OrdersCompared) -> Section:
    """Head orders beside each other."""
    note = f"{orders_note(orders)} Drawn: {orders.pairs['constants'].iloc[0]}."
    tables = _noted(order_rows(orders), COST_NOTE), _noted(pair_rows(orders), LIKENESS_NOTE)
    return Section("Head orders told apart", note, order_charts(orders), tables=tables)


def amounts_section(averages: pandas.DataFrame) -> Section:
    """Averages over some of the text."""
    note = "The score by averages over little text; below points the share of entries never seen."
    table = _noted(amounts_table(averages), AMOUNTS_NOTE)
    charts = amount_charts(averages)
    return Section("How much text an average needs", note, charts, tables=(table,))


def cache_section(cells: Sequence[CachedCell]) -> Section:
    """Which groups of a decoder's heads need no cache."""
    table = _noted(cache_table(cells), CACHE_NOTE)
    return Section("Cache", "What constant heads save.", (), tables=(table,))


def descriptions_section(frames: Mapping[str, pandas.DataFrame]) -> Section:
    """What heads do: maps of which are alike, and tables that are closed."""
    note = (
        "What heads do, told without a task; docs/how-to/describe.md says of each measure what it "
        "is. input-dependent: the model's own attention; constant: its average, in the model as it "
        "is; replaced: the model whose heads are all constant."
    )
    charts = alike_charts(frames["similarity"]) if "similarity" in frames else ()
    note += f" {ALIKE_NOTE}" if charts else ""
    tables = [NotedTable(own.heading, own.note, own.headings, own.rows) for own in told(frames)]
    return Section("What heads do", note, charts, tables=tables)


def _noted(table: WrittenTable, note: str) -> NotedTable:
    return NotedTable(table.heading, note, table.headings, table.rows)
