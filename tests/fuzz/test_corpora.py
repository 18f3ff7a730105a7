"""Corpora that nobody would write on purpose: the rows that a plain reading finds, or one sentence
with the file.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from papa.corpora.local_files import read_file
from papa.corpora.rows import TaskRows, read_rows
from papa.corpora.table import SourceTable
from papa.spec import TaskSpec
from tests.fuzz.outcomes import result_or_sentence, times
from tests.fuzz.values import ODD_TEXT, ODD_VALUES

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BITS = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
KINDS: dict[str, dict[str, Any]] = {
    "text": {"columns": {"text": "text", "label": "label"}, "metric": "accuracy"},
    "pair": {
        "columns": {"text": "text", "text_pair": "other", "label": "label"},
        "metric": "spearman",
    },
    "words": {"columns": {"words": "words", "label": "tags"}, "metric": "entity_f1"},
    "mlm": {"columns": {"text": "text"}, "metric": "negative_log_perplexity"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


def written(folder: Path, suffix: str, content: bytes) -> Path:
    path = folder / f"rows.{suffix}"
    path.write_bytes(content)
    return path


def table_or_sentence(path: Path, *, header: bool = True) -> SourceTable | None:
    table = result_or_sentence(lambda: read_file(path, None, header=header), "rows.")
    if table is not None:
        table.rows.validate(full=True)
    return table


def rows_or_sentence(path: Path, kind: str, **changes: Any) -> TaskRows | None:
    probe = {"learning_rate": 1e-4, "batch_size": 8, "epochs": 1}
    source = {"kind": "files", "train": path, "validation": path}
    spec = {
        "name": "task",
        "kind": kind,
        "source": source,
        "slots": 16,
        "probe": probe,
        **KINDS[kind],
        **changes,
    }
    task = TaskSpec.model_validate(spec)
    rows = result_or_sentence(lambda: read_rows(task), "rows.")
    if rows is None:
        return None
    for table in (rows.train, rows.validation):
        table.validate(full=True)
        if kind == "pair":
            assert np.isfinite(table["label"].to_numpy()).all()
        elif kind == "text":
            assert rows.label_names is not None
            assert set(table["label"].to_pylist()) <= set(range(len(rows.label_names)))
        elif kind == "words":
            assert [len(words) for words in table["words"].to_pylist()] == list(
                map(len, table["label"].to_pylist())
            )
        else:
            assert all(text.strip() for text in table["text"].to_pylist())
    return rows


def damaged(content: bytes, bits: list[tuple[float, int]], cut: float) -> bytes:
    """The content with some of its bits flipped and its end cut off."""
    changed = bytearray(content)
    for place, bit in bits:
        changed[int(place * len(changed))] ^= 1 << bit
    return bytes(changed[: max(1, round(cut * len(changed)))])


@times(4)
@given(
    st.sampled_from(["jsonl", "csv", "tsv", "txt", "conll", "parquet"]),
    st.binary(max_size=300),
    st.booleans(),
)
@example("csv", b'"', True)
@example("csv", b"\n\n\n", True)
@example("tsv", b"\xef\xbb\xbf", True)
@example("txt", b"\r\r\r", True)
@example("conll", b"\t\n\n\t", True)
@example("conll", b"-DOCSTART-", True)
@example("jsonl", b"{}\n{}", True)
@example("jsonl", b"\xef\xbb\xbf{}", True)
def test_any_bytes(folder: Path, suffix: str, content: bytes, header: bool) -> None:
    table_or_sentence(written(folder, suffix, content), header=header)


@times(8)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys(("text", "label"), ODD_VALUES)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["text", "mlm"]),
)
def test_json_of_any_values(folder: Path, rows: list[dict[str, Any]], kind: str) -> None:
    content = "".join(json.dumps(row) + "\n" for row in rows)
    found = rows_or_sentence(written(folder, "jsonl", content.encode()), kind)
    if found is not None and kind == "text":
        assert found.train["text"].to_pylist() == [row["text"] for row in rows]
        names = found.label_names or ()
        for label, row in zip(found.train["label"].to_pylist(), rows, strict=True):
            assert same_label(names[label], row["label"])


def same_label(name: str, given_label: Any) -> bool:
    if isinstance(given_label, bool):
        return name == str(int(given_label))
    if isinstance(given_label, str):
        try:
            return name == given_label or int(name) == int(given_label)
        except ValueError:
            return False
    return int(name) == given_label


@times(8)
@given(
    st.lists(st.tuples(WORDS, st.integers(0, 2)), min_size=1, max_size=6),
    st.sampled_from(["csv", "tsv", "jsonl"]),
)
def test_texts_of_any_characters_are_kept(
    folder: Path, rows: list[tuple[str, int]], suffix: str
) -> None:
    """What a plain writer writes is read again, whatever it spells; where it is not, a sentence
    says so.
    """
    if suffix == "jsonl":
        content = "".join(
            json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n"
            for text, label in rows
        )
    elif suffix == "csv":
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows([("text", "label"), *rows])
        content = file.getvalue()
    else:
        assume(not any(set(text) & set("\t\n\r") for text, _ in rows))
        content = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    found = rows_or_sentence(written(folder, suffix, content.encode()), "text")
    if found is None:
        assert any(set(text) & set("\0\ufeff") for text, _ in rows), rows
        return
    assert found.train["text"].to_pylist() == [text for text, _ in rows]
    numbers = sorted({label for _, label in rows})
    assert found.label_names == tuple(map(str, numbers))
    assert found.train["label"].to_pylist() == [numbers.index(label) for _, label in rows]


FIELDS = st.one_of(
    st.sampled_from(
        ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-", "-DOCSTART-", "B", "0", "-1", "", "x", "٣"]
    ),
    WORDS,
)


@times(8)
@given(
    st.lists(st.lists(st.lists(FIELDS, min_size=1, max_size=3), max_size=4), max_size=4),
    st.sampled_from([" ", "\t", "  "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
@example([[["a", "B-PER"]], [["b", "I-PER", "x"]]], " ", "\n")
@example([[["a", "O"], ["b O"]]], "\t", "\n")
def test_conll(folder: Path, sentences: list[list[list[str]]], between: str, end: str) -> None:
    content = end.join(
        end.join(between.join(fields) for fields in sentence) + end for sentence in sentences
    )
    path = written(folder, "conll", content.encode())
    for metric in ("entity_f1", "token_f1"):
        found = rows_or_sentence(path, "words", columns={"words": "0", "label": "1"}, metric=metric)
        if found is not None and end == "\n" and between == "\t":
            lines = [line for line in content.split("\n") if line.strip()]
            plain = [line.split("\t") if "\t" in line else line.split() for line in lines]
            words = [word for row in found.train["words"].to_pylist() for word in row]
            assert words == [fields[0].strip() for fields in plain if fields[0] != "-DOCSTART-"]


PIECES = st.sampled_from(
    [
        "text", "label", ",", "\t", '"', '""', "\n", "\r", "\r\n", "0", "1", "a", " ", "\\", "\0",
        "\ufeff", "'", ";", "é",
    ]
)  # fmt: skip


@times(8)
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["csv", "tsv"]))
def test_separated_values_of_pieces(folder: Path, body: str, suffix: str) -> None:
    separator = "," if suffix == "csv" else "\t"
    path = written(folder, suffix, f"text{separator}label\n{body}".encode())
    table = table_or_sentence(path)
    if table is not None and '"' not in body and not set("\r\0\ufeff") & set(body):
        plain = [tuple(line.split(separator)) for line in body.split("\n") if line]
        assert list(zip(*table.rows.to_pydict().values(), strict=True)) == plain
    rows_or_sentence(path, "text")


SOUND = {
    "text": ["alpha beta", "gamma", "delta " * 20] * 20,
    "label": [0, 1, 2] * 20,
    "words": [["a", "b"], ["c"], []] * 20,
    "tags": [["B-PER", "I-PER"], ["O"], []] * 20,
    "other": ["one", "two", "three"] * 20,
}


def sound(folder: Path, suffix: str, compression: str, dictionary: bool) -> bytes:
    table, path = pa.table(SOUND), folder / "sound.parquet"
    if suffix == "parquet":
        metadata = {
            "huggingface": json.dumps({"info": {"features": {"label": {"names": ["a", "b", "c"]}}}})
        }
        table = table.replace_schema_metadata(metadata) if dictionary else table
        pa.parquet.write_table(
            table, path, compression=compression, use_dictionary=dictionary, row_group_size=25
        )
        return path.read_bytes()
    rows = table.to_pylist()
    if suffix == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    return "".join(
        f"{word}\t{tag}\n"
        for row in rows
        for word, tag in zip(row["words"], row["tags"], strict=True)
    ).encode()


@times(16)
@given(
    st.sampled_from(["parquet", "parquet", "parquet", "jsonl", "conll"]),
    st.sampled_from(["snappy", "none", "zstd", "gzip"]),
    st.booleans(),
    st.lists(BITS, max_size=4),
    st.sampled_from([1.0, 1.0, 1.0, 0.99, 0.5, 0.01]),
    st.sampled_from(list(KINDS)),
)
def test_flipped_bits(
    folder: Path,
    suffix: str,
    compression: str,
    dictionary: bool,
    bits: list[tuple[float, int]],
    cut: float,
    kind: str,
) -> None:
    path = written(
        folder, suffix, damaged(sound(folder, suffix, compression, dictionary), bits, cut)
    )
    table_or_sentence(path)
    rows_or_sentence(path, kind)


TYPES = st.sampled_from(
    [
        pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(),
        pa.large_string(), pa.binary(), pa.date32(), pa.timestamp("ns"), pa.duration("s"),
        pa.decimal128(38, 2), pa.null(), pa.list_(pa.string()), pa.large_list(pa.int64()),
        pa.list_(pa.list_(pa.string())), pa.struct({"a": pa.int64()}),
        pa.map_(pa.string(), pa.int64()), pa.list_(pa.int64(), 2),
        pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
        pa.string_view(), pa.list_(pa.bool_()), pa.list_(pa.dictionary(pa.int8(), pa.string())),
    ]
)  # fmt: skip


def value_of(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_dictionary(kind):
        return value_of(kind.value_type, number)
    if pa.types.is_fixed_size_list(kind):
        return [number, number]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value_of(kind.value_type, number)] * (number % 3)
    if pa.types.is_map(kind):
        return [("a", number)]
    if pa.types.is_struct(kind):
        return {"a": number}
    if pa.types.is_boolean(kind):
        return bool(number % 2)
    if pa.types.is_null(kind):
        return None
    if pa.types.is_binary(kind):
        return bytes([number])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return ["O", "B-X", "I-X", ""][number % 4]
    whole = pa.scalar(number, pa.int32() if kind == pa.date32() else pa.int64())
    return whole.cast(kind, safe=False).as_py()


@times(8)
@given(TYPES, TYPES, st.sampled_from(list(KINDS)), st.integers(1, 5), st.booleans())
def test_columns_of_every_type(
    folder: Path, first: pa.DataType, second: pa.DataType, kind: str, rows: int, holes: bool
) -> None:
    def column(of: pa.DataType, start: int) -> pa.Array:
        values = [value_of(of, start + row) for row in range(rows)]
        return pa.array([None, *values[1:]] if holes and start else values, of)

    table = {"text": column(first, 0), "words": column(first, 0), "other": column(first, 1)}
    path = folder / "rows.parquet"
    try:
        pa.parquet.write_table(
            pa.table({**table, "label": column(second, 1), "tags": column(second, 1)}), path
        )
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        assume(False)
    rows_or_sentence(path, kind)


@times(4)
@given(
    st.lists(
        st.one_of(st.floats(), st.integers(-(2**70), 2**70), ODD_TEXT, st.booleans()),
        min_size=1,
        max_size=4,
    )
)
@example([1e300])
@example([math.nan])
@example([2**53 + 1])
def test_numbers_to_predict(folder: Path, labels: list[Any]) -> None:
    content = "".join(
        json.dumps({"text": "a", "other": "b", "label": label}) + "\n" for label in labels
    )
    found = rows_or_sentence(written(folder, "jsonl", content.encode()), "pair")
    if found is not None:
        assert found.train["label"].to_pylist() == [
            float(np.float32(float(label))) for label in labels
        ]
