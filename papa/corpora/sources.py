"""Where rows come from: local files, the Hugging Face hub, or the embedded reviews."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from papa.artifacts import sha256_of_file, sha256_of_json
from papa.corpora.embedded import read_reviews, reviews_file
from papa.corpora.files import read_file
from papa.corpora.table import SourceTable
from papa.errors import DataError
from papa.spec import FilesSource, HubSource, Source, TaskSpec

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")


def read_source(task: TaskSpec, split: Split) -> SourceTable:
    """The rows of one split of the task's source, as the source gives them.

    Raises:
        DataError: the source is missing, unreachable, damaged or has no row.
    """
    match task.source:
        case FilesSource() as source:
            path = source.train if split == "train" else source.validation
            table = read_file(path, source.format, header=source.header)
        case HubSource() as source:
            from papa.corpora.hub import read_hub

            table = read_hub(source, source.train if split == "train" else source.validation)
        case _:
            table = read_reviews(split)
    if table.rows.num_rows == 0:
        raise DataError(f"{table.origin} has no row: give a {split} split with at least one")
    return table


def fingerprint(source: Source) -> str:
    """A digest that changes when the source's content does; nothing is tokenised.

    Local and embedded files: their bytes. Hub: name, configuration, splits and the commit that the revision
    stands for, which is remembered for when the hub cannot be reached; the branch's own name does not count.

    Raises:
        DataError: a local file is missing, the embedded package is not installed, or the hub has no such dataset.
        HubUnreachableError: the hub does not answer, and this machine never asked before.
    """
    match source:
        case FilesSource():
            for path in (source.train, source.validation):
                if not path.is_file():
                    raise DataError(f"there is no file at {path}: correct the task's source, or put the file there")
            content: dict[str, object] = {
                "train": sha256_of_file(source.train),
                "validation": sha256_of_file(source.validation),
                "format": source.format,
                "suffixes": [source.train.suffix, source.validation.suffix],
                "header": source.header,
            }
        case HubSource():
            from papa.corpora.repository import commit_of

            content = {**source.model_dump(mode="json"), "revision": commit_of(source)}
        case _:
            content = {"name": source.name, "sha256": sha256_of_file(reviews_file())}
    return sha256_of_json({"kind": source.kind, **content})


def pinned(source: Source) -> Source:
    """The source at the commit that its revision stands for now; what is on this machine as it is.

    Raises:
        DataError: the hub has no such dataset or revision, or it may not be read.
        HubUnreachableError: the hub does not answer, and this machine never asked before.
    """
    if not isinstance(source, HubSource) or Path(source.name).is_dir():
        return source
    from papa.corpora.repository import commit_of

    return source.model_copy(update={"revision": commit_of(source)})
