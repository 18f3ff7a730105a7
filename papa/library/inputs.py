"""What the library takes as text: strings, pairs, data sets and frames, as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from papa.attention.patterns import special_slots
from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.corpora.layout import arrange_one, arrange_pair, pair_capacity
from papa.corpora.ragged import PackedTokens
from papa.corpora.rows import text_column
from papa.corpora.table import SourceTable, names_of_classes
from papa.corpora.tokens import tokens_of_texts
from papa.errors import DataError, in_one_line, nearest_first
from papa.library.encoder import TextEncoder

Table: TypeAlias = Any
Texts: TypeAlias = Iterable[str] | Iterable[tuple[str, str]] | Table


@dataclass(frozen=True)
class LaidOut:
    """Texts in the slots of an encoder's layout, and the slots of [CLS] and [SEP] where known."""

    tokens: PackedTokens
    batch_tokens: int
    special: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    def batches(self) -> Iterator[MicroBatch]:
        """Micro-batches of texts of like length; their rows are numbers of texts."""
        tokens = self.tokens
        for rows in rows_of_like_length(tokens.first_lengths, tokens.lengths, self.batch_tokens):
            yield MicroBatch.of(rows, tokens.take(rows))


def laid_out(encoder: TextEncoder, texts: Texts, text: str, text_pair: str | None) -> LaidOut:
    """Tokenise texts and lay them out in the encoder's slots (paper, App. A)."""
    framing, slots = encoder.special_tokens, encoder.slots
    first, *others = (
        tokens_of_texts(encoder.tokenizer, framing, side) for side in _sides(texts, text, text_pair)
    )
    if others:
        pair_capacity(framing, slots)
        tokens = arrange_pair(first, others[0], framing, "follow", slots)
    else:
        tokens = arrange_one(first.cut(slots - 2), framing, slots)
    double = framing.between == 2
    special = special_slots("pair" if others else "text", slots, double_separator=double)
    return LaidOut(tokens, encoder.encoder.tokens_per_batch(None), special)


def _sides(texts: Texts, text: str, text_pair: str | None) -> list[list[str]]:
    """The texts, and the second ones where inputs are pairs."""
    if isinstance(texts, str | bytes):
        raise DataError(f"texts is one string: give a list, such as [{texts[:20]!r}]")
    if is_tabular(texts):
        columns = {"text": text} | ({} if text_pair is None else {"text_pair": text_pair})
        table = table_of(texts, "the table of texts", columns)
        return [text_column(table, name).to_pylist() for name in columns.values()]
    items = list(texts)
    if not items:
        raise DataError("there is no text: give at least one")
    pairs = isinstance(items[0], tuple)
    for number, item in enumerate(items):
        sides = item if pairs and isinstance(item, tuple) and len(item) == 2 else [item]
        if len(sides) != 1 + pairs or not all(isinstance(one, str) for one in sides):
            expected = "a pair of strings" if pairs else "a string"
            raise DataError(f"text {number} is a {type(item).__name__}, expected {expected}")
    return [list(side) for side in zip(*items, strict=True)] if pairs else [items]


def is_tabular(data: object) -> bool:
    """Whether it has columns."""
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def table_of(data: Table, origin: str, columns: Mapping[str, str]) -> SourceTable:
    """A table from the kinds that ``Table`` names, which has these columns, by parameter."""
    names = list(data) if isinstance(data, Mapping) else getattr(data, "column_names", [])
    if "input_ids" in names:
        told = ", ".join(names)
        raise DataError(f"{origin}: tokenised inputs ({told}) were given: give the texts")
    classes: dict[str, tuple[str, ...]] = {}
    try:
        if hasattr(data, "features") and hasattr(data, "with_format"):
            classes = names_of_classes(data.features or {})
            rows = data.with_format("arrow")[:]
        else:
            rows = pa.table(dict(data) if isinstance(data, Mapping) else data)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"{origin} cannot be read as a table ({in_one_line(error)}): give a data set, a data "
            "frame or a mapping of columns"
        ) from None
    if rows.num_rows == 0:
        raise DataError(f"{origin} has no row: give at least one")
    found = rows.column_names
    for parameter, column in columns.items():
        if column not in found:
            raise DataError(
                f"{origin} has no column '{column}' (found: {nearest_first(column, found)}): "
                f"name the right one, such as {parameter}='{found[0]}'"
            )
    return SourceTable(rows, origin, classes)
