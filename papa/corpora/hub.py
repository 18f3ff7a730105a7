"""Datasets of the Hugging Face hub at one commit; dataset scripts never run.

Which files a split has the ``datasets`` library works out, from a folder with the README and empty
files of the same names. ``huggingface_hub`` fetches them one by one into its cache, which keeps all
that is needed when the hub is gone; they are read as local ones are.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import yaml

from papa.corpora.local_files import format_of, read_file
from papa.corpora.table import SourceTable, names_of_classes
from papa.errors import DataError, in_one_line, nearest_first
from papa.files import is_plain
from papa.hub_errors import download_bar, hub_errors
from papa.spec import HubSource

README = "README.md"
_LOCAL = "give local files (source.kind: files)"


def read_split(source: HubSource, split: str) -> SourceTable:
    """All rows of a split."""
    commit, label = commit_of(source), _label_of(source)
    splits, class_names = _splits(source, commit)
    if split not in splits:
        raise DataError(
            f"dataset '{label}' has no split '{split}' (found: {nearest_first(split, splits)}): "
            "set source.train and source.validation to splits it has"
        )
    origin = f"dataset '{label}', split '{split}'"
    for file in splits[split]:
        if format_of(PurePosixPath(file)) is None:
            raise DataError(f"{origin}, lies in {file}, whose format is not read: {_LOCAL}")
    files = [_fetched(source.name, commit, file) for file in splits[split]]
    tables = [read_file(file, None, header=True) for file in files]
    names = tables[0].class_names
    if any(table.class_names != names for table in tables):
        raise DataError(f"{origin}: its files number their classes differently: {_LOCAL}")
    try:
        rows = pa.concat_tables([table.rows for table in tables], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{origin}: its files differ ({in_one_line(error)}): {_LOCAL}") from None
    return SourceTable(rows, origin, {**class_names, **names})


def commit_of(source: HubSource) -> str:
    """The commit that the source's revision stands for, asked once a process; where the hub does
    not answer, stood for when it was last asked.
    """
    if source.revision is not None and re.fullmatch(r"[0-9a-f]{40}", source.revision):
        return source.revision
    return _asked(source.name, source.revision)


@cache
def _asked(name: str, revision: str | None) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionResolutionError

    with _hub_errors(name, revision):
        try:
            found = HfApi().resolve_revision(name, repo_type="dataset", revision=revision)
        except RevisionResolutionError as error:
            raise error.__cause__ or error from None
        return found.resolved


@cache
def _listed(name: str, commit: str) -> list[str]:
    """The files of a commit; the README is fetched with the list."""
    from huggingface_hub import get_cached_repo_tree, snapshot_download

    with _hub_errors(name, commit):
        snapshot_download(  # The one call that keeps the list of files.
            name,
            repo_type="dataset",
            revision=commit,
            allow_patterns=[README, ".gitattributes"],
            tqdm_class=download_bar(),
        )
        files = get_cached_repo_tree(name, repo_type="dataset", revision=commit)
        return [file.path for file in files if is_plain(file.path)]


def _fetched(name: str, commit: str, file: str) -> Path:
    from huggingface_hub import hf_hub_download

    place: dict[str, Any] = {"repo_type": "dataset", "revision": commit}
    with _hub_errors(name, commit):
        return Path(hf_hub_download(name, file, **place, tqdm_class=download_bar()))


def _hub_errors(name: str, revision: str | None) -> AbstractContextManager[None]:
    from huggingface_hub import constants

    page = f"{constants.ENDPOINT}/datasets/{name}"
    return hub_errors(f"dataset '{name}'", page, revision, DataError)


def _label_of(source: HubSource) -> str:
    name = "/".join(filter(None, (source.name, source.config)))
    return f"{name}@{source.revision}" if source.revision else name


Names = Mapping[str, tuple[str, ...]]


@cache
def _splits(source: HubSource, commit: str) -> tuple[Names, Names]:
    """The files of each split of the source's configuration, and its README's class names."""
    from datasets import Features, load_dataset_builder
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DataFilesNotFoundError

    listed, label = _listed(source.name, commit), _label_of(source)
    with tempfile.TemporaryDirectory(prefix="papa-dataset-") as temporary:
        folder = Path(temporary).resolve()
        for file in listed:
            # A description in the old form must not be empty, and is not needed.
            if PurePosixPath(file).suffix not in (".py", ".md") and file != "dataset_infos.json":
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).touch()
        (folder / README).write_text(_card(source.name, commit), encoding="utf-8")
        try:
            builder = load_dataset_builder(str(folder), source.config)
            splits = {
                str(split): tuple(str(Path(file).relative_to(folder)) for file in files)
                for split, files in (builder.config.data_files or {}).items()
            }
        except (DataFilesNotFoundError, EmptyDatasetError):
            held = "holds no data file that is read:"
            if any(PurePosixPath(file).suffix == ".py" for file in listed):
                held = (
                    "is a script, and scripts never run: set source.revision to "
                    "refs/convert/parquet, where the hub keeps Parquet copies of many of them, or"
                )
            raise DataError(f"dataset '{label}' {held} {_LOCAL}") from None
        except Exception as error:  # The library raises whatever its many readers raise.
            reason = " ".join(str(error).replace(str(folder), source.name).split())[:300]
            raise DataError(
                f"dataset '{label}' cannot be read ({reason}): correct source.config and "
                f"source.revision, or {_LOCAL}"
            ) from None
    return splits, names_of_classes((builder.info.features or Features()).to_dict())


def _card(name: str, commit: str) -> str:
    """The README; of ``refs/convert/parquet``, which has none, one that says that a configuration
    is a folder and a split a folder below it.
    """
    listed = _listed(name, commit)
    if README in listed:
        text = _fetched(name, commit, README).read_text(encoding="utf-8")
        return text if text.startswith("---") else ""  # Else the library would complain.
    parts = [PurePosixPath(file).parts for file in listed if not file.startswith(".")]
    if not all(len(part) == 3 and part[2].endswith(".parquet") for part in parts):
        return ""
    files = defaultdict(list)
    for config, split in sorted({part[:2] for part in parts}):
        # Not those of which the hub converted the beginning alone ("partial-train").
        if re.fullmatch(r"\w+(\.\w+)*", split):
            files[config].append({"split": split, "path": f"{config}/{split}/*.parquet"})
    configs = [{"config_name": config, "data_files": own} for config, own in files.items()]
    return f"---\n{yaml.safe_dump({'configs': configs})}---\n"
