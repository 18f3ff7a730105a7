"""Sections of the report that only some studies have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas

from papa.descriptions.told import told
from papa.reporting.amounts import amount_charts, amounts_table
from papa.reporting.cache import CachedCell, cache_table
from papa.reporting.figures.alike import ALIKE_NOTE, alike_charts
from papa.reporting.order_tables import order_charts, order_table, orders_note, pair_table
from papa.reporting.orders import OrdersCompared
from papa.reporting.page import Section
from papa.reporting.written import WrittenTable


def orders_section(orders: OrdersCompared) -> Section:
    """Head orders beside each other."""
    note = f"{orders_note(orders)} Drawn: {orders.pairs['constants'].iloc[0]}."
    tables = order_table(orders), pair_table(orders)
    return Section("Head orders told apart", note, order_charts(orders), tables=tables)


def amounts_section(averages: pandas.DataFrame) -> Section:
    """Averages over some of the text."""
    note = "The score by averages over little text; below points the share of entries never seen."
    heading, charts = "How much text an average needs", amount_charts(averages)
    return Section(heading, note, charts, tables=(amounts_table(averages),))


def cache_section(cells: Sequence[CachedCell]) -> Section:
    """Which groups of a decoder's heads need no cache."""
    return Section("Cache", "What constant heads save.", (), tables=(cache_table(cells),))


def descriptions_section(frames: Mapping[str, pandas.DataFrame]) -> Section:
    """What heads do: maps of which are alike, and tables that are closed."""
    note = (
        "What heads do, told without a task; docs/how-to/describe.md says of each measure what it "
        "is. input-dependent: the model's own attention; constant: its average, in the model as it "
        "is; replaced: the model after replacement."
    )
    charts = alike_charts(frames["similarity"]) if "similarity" in frames else ()
    note += f" {ALIKE_NOTE}" if charts else ""
    tables = [WrittenTable(own.heading, own.headings, own.rows, own.note) for own in told(frames)]
    return Section("What heads do", note, charts, tables=tables)
