"""Datasets of the Hugging Face hub; dataset scripts never run.

Which files a split has the ``datasets`` library works out, from a folder with the README and empty
files of the same names. On branches that the hub converts to Parquet (``refs/convert/parquet``) a
configuration is a folder and a split a folder below it. Files are read as local ones are.
"""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet

from papa.corpora.local_files import format_of, read_file
from papa.corpora.repository import README, Repository, open_repository
from papa.corpora.table import SourceTable, class_names_of, names_of_classes
from papa.errors import DataError, in_one_line, nearest_first
from papa.spec import HubSource

_DESCRIPTIONS = ("dataset_infos.json", ".huggingface.yaml")
_LOCAL = "give local files (source.kind: files)"


@dataclass(frozen=True)
class HubSplit:
    """The files of one split, and the names that the README gives to columns of integer classes."""

    repository: Repository
    origin: str
    files: tuple[str, ...]
    class_names: Mapping[str, tuple[str, ...]]

    @property
    def bytes_to_fetch(self) -> int:
        """What reading it would download."""
        return sum(
            self.repository.files[file] for file in self.files if not self.repository.is_here(file)
        )

    def read(self) -> SourceTable:
        """All rows."""
        paths = [self.repository.fetch(file) for file in self.files]
        tables = [read_file(path, None, header=True) for path in paths]
        for column, wanted in tables[0].class_names.items():
            tables = [table.numbered_like(column, wanted, tables[0].origin) for table in tables]
        try:
            rows = pa.concat_tables([table.rows for table in tables])
        except pa.ArrowInvalid as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{self.origin}: its files differ in their columns ({reason}): {_LOCAL}"
            ) from None
        names = {**self.class_names, **tables[0].class_names}
        return SourceTable(rows, self.origin, names)

    def look(self) -> tuple[SourceTable, int] | None:
        """A table with the split's columns and no row, and how many rows it has, by the ends of
        Parquet files; None where files of other formats would have to be fetched.
        """
        if any(format_of(PurePosixPath(file)) != "parquet" for file in self.files):
            return None
        footers = [_footer(self.repository, file) for file in self.files]
        schema = footers[0].schema.to_arrow_schema()
        names = {**self.class_names, **class_names_of(schema, self.origin)}
        rows = sum(footer.num_rows for footer in footers)
        return SourceTable(schema.empty_table(), self.origin, names), rows


def split_of(source: HubSource, split: str) -> HubSplit:
    """The files of a split; none of them is fetched."""
    repository = open_repository(source)
    label = _label_of(source)
    splits, names = _splits(source, repository.commit)
    if split not in splits:
        raise DataError(
            f"dataset '{label}' has no split '{split}' (found: {nearest_first(split, splits)}): "
            "set source.train and source.validation to splits it has"
        )
    strange = next((file for file in splits[split] if format_of(PurePosixPath(file)) is None), None)
    if strange is not None:
        raise DataError(
            f"dataset '{label}', split '{split}', lies in {strange}, whose format is not read: "
            f"{_LOCAL}"
        )
    return HubSplit(repository, f"dataset '{label}', split '{split}'", splits[split], names)


def _label_of(source: HubSource) -> str:
    name = "/".join(filter(None, (source.name, source.config)))
    return f"{name}@{source.revision}" if source.revision else name


Splits = tuple[dict[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]


@cache
def _splits(source: HubSource, commit: str) -> Splits:
    """The files of each split of the source's configuration, and its README's class names."""
    repository, label = open_repository(source), _label_of(source)
    folders = _converted(repository)
    if folders:
        config = _chosen(
            source.config, folders, "default" if len(folders) > 1 else next(iter(folders)), label
        )
        return {split: tuple(files) for split, files in folders[config].items()}, {}
    from datasets import (
        get_dataset_config_names,
        get_dataset_default_config_name,
        load_dataset_builder,
    )
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DataFilesNotFoundError

    with _outline(repository) as folder:
        try:
            configs = get_dataset_config_names(folder)
            default = get_dataset_default_config_name(folder)
            config = _chosen(source.config, configs, default, label)
            builder = load_dataset_builder(folder, config)
            found = builder.config.data_files or {}
            splits = {
                str(split): tuple(str(Path(file).relative_to(folder)) for file in files)
                for split, files in found.items()
            }
        except (DataFilesNotFoundError, EmptyDatasetError):
            held = f"holds no data file that is read: {_LOCAL}"
            if any(PurePosixPath(file).suffix == ".py" for file in repository.files):
                held = (
                    "is a script, and scripts never run: set source.revision to "
                    f"refs/convert/parquet, where the hub keeps Parquet copies of many of them, or "
                    f"{_LOCAL}"
                )
            raise DataError(f"dataset '{label}' {held}") from None
        except DataError:
            raise
        except Exception as error:  # The library raises whatever its many readers raise.
            reason = " ".join(str(error).replace(folder, source.name).split())[:300]
            raise DataError(
                f"dataset '{label}' has no readable list of splits ({reason}): {_LOCAL}"
            ) from None
        strange = [
            file for files in splits.values() for file in files if file not in repository.files
        ]
        if strange:
            raise DataError(
                f"dataset '{label}': its card names {strange[0]}, which is no file of it: {_LOCAL}"
            )
        return splits, names_of_classes(builder.info.features or {})


def _chosen(config: str | None, existing: Iterable[str], default: str | None, label: str) -> str:
    names = list(existing)
    if config in names:
        return config
    if config is not None:
        raise DataError(
            f"dataset '{label}' has no configuration '{config}' (found: "
            f"{nearest_first(config, names)}): set source.config to one it has"
        )
    if default not in names:
        raise DataError(
            f"dataset '{label}' has several configurations: set source.config to one of "
            f"{nearest_first('', names)}"
        )
    return default


def _converted(repository: Repository) -> dict[str, dict[str, list[str]]]:
    """Configuration → split → files of what the hub converted; empty for other repositories."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(repository.files):
        parts = PurePosixPath(file).parts
        if len(parts) == 3 and parts[2].endswith(".parquet"):
            found[parts[0]][parts[1]].append(file)
        elif not file.startswith("."):
            return {}
    return found


@contextmanager
def _outline(repository: Repository) -> Iterator[str]:
    """A folder that looks like the repository to whoever asks for its configurations: data files
    are empty.
    """
    with tempfile.TemporaryDirectory(prefix="papa-dataset-") as temporary:
        folder = Path(temporary).resolve()
        for file in repository.files:
            if PurePosixPath(file).suffix not in (".py", ".md") and file not in _DESCRIPTIONS:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).touch()
        if README in repository.files:
            text = repository.fetch(README).read_text(encoding="utf-8")
            if text.startswith("---"):  # Without a block of settings the library would complain.
                (folder / README).write_text(text, encoding="utf-8")
        yield str(folder)


def _footer(repository: Repository, file: str) -> pyarrow.parquet.FileMetaData:
    try:
        if repository.is_here(file):
            return pa.parquet.read_metadata(repository.fetch(file))
        tail = repository.tail(file)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > len(tail):
            tail = repository.tail(file, length)
        # A file that is nothing but its end reads like the whole as long as no row is asked for.
        return pa.parquet.read_metadata(io.BytesIO(b"PAR1" + tail[-length:]))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{repository.name}/{file} cannot be read as Parquet ({in_one_line(error)}): {_LOCAL}"
        ) from None
