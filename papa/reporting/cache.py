"""What constant heads of a decoder save of its cache: keys and values, a group of heads that share
them at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from papa.reporting.wording import WrittenTable, fraction_label, order_label, percent_label
from papa.spec import ConstantsSpec
from papa.spec.cells import Cell
from papa.spec.orders import Head
from papa.spec.values import REUSED

_NOTE = (
    "Heads that share keys and values save them together: a group of which one head keeps its "
    "attention keeps its cache. Groups: those whose heads are all constant, over the seeds of the "
    "study from the fewest to the most. Keys, values: the share of the cache's that a text of as "
    "many tokens as were read does not need; values are needed as far back as the constants reach. "
    "PAPA itself saves nothing: this is what an implementation could."
)
_Kept = Callable[[Mapping[str, int]], int]
_VALUES: dict[str, _Kept] = {
    "zeros": lambda own: 0,
    "identity": lambda own: 1,
    "previous": lambda own: 2,
    "local": lambda own: own["window"] + 1,
    "streaming": lambda own: own["sinks"] + own["recent"],
}
"""Kind → of how many tokens a head needs values; of all where a kind is not named."""
_KEYS: dict[str, _Kept] = {"streaming": _VALUES["streaming"]}
"""Kind → of how many tokens it needs keys; of none where a kind is not named."""


@dataclass(frozen=True)
class CachedCell:
    """A cell of a decoder.

    Attributes:
        heads: the constant ones; of each seed where seeds have others.
        sharing: query heads to a head of keys and values, of which there are ``groups``.
        tokens: of the longest text that was read.
    """

    cell: Cell
    constants: ConstantsSpec
    heads: Sequence[Sequence[Head]]
    sharing: int
    groups: int
    tokens: int

    def row(self) -> dict[str, str]:
        kind, own = self.constants.kind, self.constants.parameters
        # Those of the first layer have no layer before to reuse.
        heads = [[one for one in each if one[0] or kind != REUSED] for each in self.heads]
        whole = sorted(whole_groups(each, self.sharing) for each in heads)
        cell, tokens = self.cell, self.tokens
        values = min(_VALUES.get(kind, lambda _: tokens)(own), tokens)
        keys = min(_KEYS.get(kind, lambda _: 0)(own), tokens)
        saved = (
            _span([percent_label(count * (1 - needed / tokens) / self.groups) for count in whole])
            for needed in (keys, values)
        )
        return {
            "Encoder": cell.encoder,
            "Task": cell.task,
            "Constants": cell.constants,
            "Order": order_label(cell.order),
            "Input-dependent": fraction_label(cell.fraction),
            "Groups": f"{_span(list(map(str, whole)))} of {self.groups}",
            **dict(zip(("Keys saved", "Values saved"), saved, strict=True)),
        }


def whole_groups(heads: Sequence[Head], sharing: int) -> int:
    """Of how many heads of keys every query head is among ``heads``."""
    shared = Counter((layer, head // sharing) for layer, head in heads)
    return sum(count == sharing for count in shared.values())


def cache_table(cells: Sequence[CachedCell]) -> WrittenTable:
    """A row for each cell."""
    return WrittenTable.of("Keys and values", [cell.row() for cell in cells], _NOTE)


def _span(sorted_texts: Sequence[str]) -> str:
    first, last = sorted_texts[0], sorted_texts[-1]
    return first if first == last else f"{first} to {last}"
