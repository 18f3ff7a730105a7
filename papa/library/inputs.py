"""What the library takes as text: strings, pairs, data sets and frames, as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from papa.attention.patterns import special_slots
from papa.corpora.batches import MicroBatch, rows_of_like_length
from papa.corpora.layout import arrange_one, arrange_pair, pair_capacity
from papa.corpora.ragged import PackedTokens, Ragged
from papa.corpora.rows import text_column
from papa.corpora.table import SourceTable, names_of_classes
from papa.corpora.tokens import tokens_of_texts
from papa.errors import DataError, nearest_first
from papa.library.encoder import TextEncoder
from papa.spec import TaskKind

Table: TypeAlias = Any
"""A ``datasets.Dataset``, a data frame, a ``pyarrow.Table``, or a mapping of columns."""
Texts: TypeAlias = Iterable[str] | Iterable[tuple[str, str]] | Table
"""Strings, pairs of strings, or a table with a column of strings."""
TOKENISED = "input_ids"


@dataclass(frozen=True)
class LaidOut:
    """Texts in the slots of an encoder's layout; ``special`` are those of [CLS] and [SEP], where
    known.
    """

    tokens: PackedTokens
    batch_tokens: int
    special: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    def batches(self) -> Iterator[MicroBatch]:
        """Micro-batches of texts of like length; their rows are numbers of texts."""
        for rows in rows_of_like_length(
            self.tokens.first_lengths, self.tokens.lengths, self.batch_tokens
        ):
            yield MicroBatch.of(rows, self.tokens.take(rows))


def laid_out(encoder: TextEncoder, texts: Texts, text: str, text_pair: str | None) -> LaidOut:
    """Tokenise texts and lay them out in the encoder's slots (paper, App. A); what does not fit is
    cut.
    """
    table, paired = _table_of_texts(texts, text, text_pair)
    first = _tokens(encoder, table, text)
    if paired is None:
        tokens = arrange_one(first.cut(encoder.slots - 2), encoder.special_tokens, encoder.slots)
    else:
        pair_capacity(encoder.special_tokens, encoder.slots)
        second = _tokens(encoder, table, paired)
        tokens = arrange_pair(first, second, encoder.special_tokens, "follow", encoder.slots)
    kind: TaskKind = "text" if paired is None else "pair"
    double = encoder.special_tokens.between == 2
    special = special_slots(kind, encoder.slots, double_separator=double)
    return LaidOut(tokens, encoder.encoder.tokens_per_batch(None), special)


def _tokens(encoder: TextEncoder, table: SourceTable, column: str) -> Ragged:
    return tokens_of_texts(
        encoder.tokenizer, encoder.special_tokens, text_column(table, column).to_pylist()
    )


def _table_of_texts(
    texts: Texts, text: str, text_pair: str | None
) -> tuple[SourceTable, str | None]:
    """The texts as a table, and its column of second texts, if any."""
    if isinstance(texts, str | bytes):
        raise DataError(f"texts is one string: give a list, such as [{texts[:20]!r}]")
    if is_tabular(texts):
        table = table_of(texts, "the table of texts")
        require_columns(table, {"text": text, "text_pair": text_pair})
        return table, text_pair
    if not isinstance(texts, Iterable):
        raise DataError(
            f"texts is a {type(texts).__name__}: give a list of strings, a data set or a data frame"
        )
    items = list(texts)
    if not items:
        raise DataError("there is no text: give at least one")
    pairs = isinstance(items[0], tuple)
    for number, item in enumerate(items):
        fits = (
            isinstance(item, tuple)
            and len(item) == 2
            and all(isinstance(text, str) for text in item)
        )
        if not (fits if pairs else isinstance(item, str)):
            expected = "a pair of strings, as the first is" if pairs else "a string"
            raise DataError(
                f"text {number} is a {type(item).__name__}, expected {expected}: give texts as "
                "they are written, not tokens"
            )
    if not pairs:
        return SourceTable(pa.table({text: pa.array(items, pa.large_string())}), "the texts"), None
    columns = [pa.array(list(side), pa.large_string()) for side in zip(*items, strict=True)]
    second = text_pair or f"{text} (second)"
    return SourceTable(
        pa.table(dict(zip((text, second), columns, strict=True))), "the texts"
    ), second


def is_tabular(data: object) -> bool:
    """Whether it has columns."""
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def table_of(data: Table, origin: str) -> SourceTable:
    """A table from the kinds that ``Table`` names."""
    if isinstance(data, Mapping) and TOKENISED in data:
        raise DataError(
            f"{origin}: tokenised inputs ({', '.join(data)}) were given: give the texts, PAPA lays "
            "them out itself"
        )
    if isinstance(data, Mapping) and any(map(is_tabular, data.values())):
        splits = ", ".join(map(str, data))
        raise DataError(
            f"{origin}: several splits were given ({splits}): give one of them, such as "
            "data['train']"
        )
    names: dict[str, tuple[str, ...]] = {}
    try:
        if hasattr(data, "features") and hasattr(data, "with_format"):
            names = names_of_classes(data.features or {})
            rows = data.with_format("arrow")[:]
        elif isinstance(data, Mapping):
            rows = pa.table({str(name): pa.array(list(values)) for name, values in data.items()})
        else:
            rows = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{origin} cannot be read as a table ({reason}): give a datasets.Dataset, a data frame "
            "or a mapping of columns of equal length, with one type in each column"
        ) from None
    if rows.num_rows == 0:
        raise DataError(f"{origin} has no row: give at least one")
    return SourceTable(rows, origin, names)


def require_columns(table: SourceTable, columns: Mapping[str, str | None]) -> None:
    """Refuse a table that lacks a column."""
    found = table.rows.column_names
    for parameter, column in columns.items():
        if column is None or column in found:
            continue
        if TOKENISED in found:
            raise DataError(
                f"{table.origin} holds tokenised inputs and no column '{column}' (found: "
                f"{', '.join(found)}): give the texts, PAPA lays them out itself"
            )
        raise DataError(
            f"{table.origin} has no column '{column}' (found: {nearest_first(column, found)}): "
            f"name the right one, such as {parameter}='{found[0]}'"
        )
