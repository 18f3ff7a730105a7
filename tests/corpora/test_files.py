"""Local files of every format, good and bad."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from papa.corpora.local_files import read_file
from papa.errors import DataError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_jsonl_skips_blank_lines_and_keeps_text_that_looks_like_dates(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        '{"text": "2020-01-01", "words": ["2020-01-02"]}\n\n{"text": "2021-01-01"}\n',
    )
    rows = read_file(path, None, header=True).rows.to_pylist()
    assert rows == [
        {"text": "2020-01-01", "words": ["2020-01-02"]},
        {"text": "2021-01-01", "words": None},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ('{"a": 1}\n[1]\n', "line 2 holds a list, not an object"),
        ('{"a": 1}\n{"a": "x"}\n', "its lines do not fit one another"),
        ("", "is empty"),
    ],
)
def test_bad_jsonl_is_named_by_line(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", content)
    with pytest.raises(DataError, match=message) as caught:
        read_file(path, None, header=True)
    assert str(path) in str(caught.value)


def test_csv_has_quotes_and_line_breaks_and_only_strings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"a, ""b""\nc",01\nnull,\n')
    assert read_file(path, None, header=True).rows.to_pylist() == [
        {"text": 'a, "b"\nc', "label": "01"},
        {"text": "null", "label": ""},
    ]


def test_tsv_of_glue_has_a_header_and_bare_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.tsv", "sentence\tlabel\nhe said \"no\t1\nit's\t0\n")
    rows = read_file(path, None, header=True).rows.to_pylist()
    assert rows == [{"sentence": 'he said "no', "label": "1"}, {"sentence": "it's", "label": "0"}]


def test_tsv_of_cola_has_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "in_domain_train.tsv", "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo it.\n")
    rows = read_file(path, None, header=False).rows
    assert rows.column_names == ["0", "1", "2", "3"]
    assert rows["3"].to_pylist() == ["One.", "Two it."]


def test_a_ragged_tsv_is_named_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\n1\t2\n1\n")
    with pytest.raises(DataError, match=r"a\.tsv cannot be read as tsv.*Row #3"):
        read_file(path, None, header=True)


def test_parquet_keeps_class_names_of_the_datasets_library(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features(
        {
            "tokens": List(Value("string")),
            "ner_tags": List(ClassLabel(names=["O", "B-X"])),
            "label": ClassLabel(names=["no", "yes"]),
        }
    )
    rows = {"tokens": [["a", "b"]], "ner_tags": [[0, 1]], "label": [1]}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    table = read_file(tmp_path / "a.parquet", None, header=True)
    assert table.class_names == {"ner_tags": ("O", "B-X"), "label": ("no", "yes")}
    assert table.rows.to_pydict() == rows


def test_parquet_of_others_has_no_class_names(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    assert read_file(tmp_path / "a.parquet", None, header=True).class_names == {}


def test_text_keeps_headings_and_skips_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\n = Robert Boulter = \n\nHe is an actor .\u2028Yes .\n   \n")
    assert read_file(path, None, header=True).rows.to_pydict() == {
        "text": ["= Robert Boulter =", "He is an actor .\u2028Yes ."]
    }


def test_conll_columns_sentences_and_document_marks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "eng.train",
        "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
        "Peter NNP I-NP I-PER\n-DOCSTART- -X- -X- O\n",
    )
    assert read_file(path, "conll", header=True).rows.to_pydict() == {
        "0": [["EU", "rejects"], ["Peter"]],
        "1": [["NNP", "VBZ"], ["NNP"]],
        "2": [["I-NP", "I-VP"], ["I-NP"]],
        "3": [["I-ORG", "O"], ["I-PER"]],
    }


def test_conll_with_tabs_keeps_spaces_inside_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "1 000\tO\nNew York\tB-LOC\n")
    assert read_file(path, None, header=True).rows["0"].to_pylist() == [["1 000", "New York"]]


def test_conll_with_spaces_keeps_other_white_space_inside_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "1\u00a0000  O\nNew\u3000York B-LOC\n")
    assert read_file(path, None, header=True).rows.to_pydict() == {
        "0": [["1\u00a0000", "New\u3000York"]],
        "1": [["O", "B-LOC"]],
    }


def test_a_short_conll_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3 has 1 columns where the lines before have 2"):
        read_file(write(tmp_path / "a.conll", "a O\n\nb\n"), None, header=True)


def test_missing_files_unknown_formats_and_wrong_encodings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file at"):
        read_file(tmp_path / "absent.jsonl", None, header=True)
    with pytest.raises(
        DataError, match=r"suffix '\.xyz' names no known format: set source\.format"
    ):
        read_file(write(tmp_path / "a.xyz", "x"), None, header=True)
    for name, content in (("latin.txt", "Café"), ("latin.jsonl", '{"text": "Café"}\n')):
        (tmp_path / name).write_bytes(content.encode("latin-1"))
        with pytest.raises(DataError, match="not UTF-8"):
            read_file(tmp_path / name, None, header=True)
