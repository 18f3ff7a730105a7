"""Artifacts: files that are complete if and only if their ``metadata.json`` is there, put last and
only where there is none; whoever reads them checks their SHA-256, which it holds (docs/store.md).

In folders for people the files lie beside the metadata. Names in metadata, which whoever may write
to a shared store writes, become paths: they are checked first.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from filelock import FileLock

from papa.errors import ArtifactError, DamagedError, in_one_line, joined, shown
from papa.files import (
    cache_folder,
    disk_errors,
    is_plain,
    scratch_beside,
    sha256_of_file,
    sha256_of_json,
)
from papa.storage.files import Address, Files, refuse_links

METADATA = "metadata.json"
SHARDS = "shards"
"""A folder of artifacts in that of a step which is not complete: its finished shards."""
Metadata: TypeAlias = dict[str, Any]
"""An artifact's metadata, as JSON has it; what is read has ``data``, ``files`` and ``sizes``."""
_LOOKUP_THREADS = 16
"""Looking up an artifact behind a URI mostly waits for the network."""
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ArtifactReference:
    """Where an artifact lies and the digest of its files: all that stages pass on."""

    path: str
    digest: str


@contextmanager
def published(
    address: Address, metadata: Mapping[str, object], *, replace: bool = False
) -> Iterator[Path]:
    """Yield a folder to fill, which becomes an artifact when the block ends without an error.

    If another process published the artifact first, that one is kept. With ``replace`` the new
    artifact replaces an existing one in one step; files of the existing one are not deleted.
    """
    files = Files(address)
    data = uuid.uuid4().hex
    won = False
    try:
        with disk_errors(files.local), files.filled(data) as folder:
            yield folder
            paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            names = [path.relative_to(folder).as_posix() for path in paths]
            digests = dict(zip(names, map(sha256_of_file, paths), strict=True))
            sizes = {name: (folder / name).stat().st_size for name in names}
        document = signed({**metadata, "data": data, "files": digests, "sizes": sizes})
        content = f"{json.dumps(document, indent=2)}\n".encode()
        with disk_errors(files.local):
            won = files.write(METADATA, content, replace=replace)
        # If the answer to our own write was lost, the retry finds metadata: they are ours if they
        # name our folder.
        won = won or read_metadata(address)["data"] == data
    finally:
        if not won:
            files.remove(data)


def signed(document: Mapping[str, object]) -> Metadata:
    """Return the document as JSON reads it back, with a digest over all that it says."""
    content = json.loads(json.dumps(document))
    content.pop("digest", None)
    return {**content, "digest": sha256_of_json(content)}


def has_metadata(address: Address) -> bool:
    """Return whether an artifact was published at ``address``; its files may be damaged since."""
    return Files(address).read(METADATA) is not None


def read_metadata(artifact: ArtifactReference | Address) -> Metadata:
    """Return what an artifact says of itself, among it ``files``, plain paths inside it → SHA-256;
    an ArtifactError where it is another than a reference names.
    """
    address = artifact.path if isinstance(artifact, ArtifactReference) else artifact
    data = Files(address).read(METADATA)
    if data is None:
        raise DamagedError(f"{address} holds no complete artifact (no {METADATA})", address)
    try:
        document: Metadata = json.loads(data)
        for name in (document["data"], *{**document["files"]}):
            if name == METADATA or not is_plain(name):
                raise ValueError(f"{shown(name)} is no plain relative path inside the artifact")
        if document["digest"] != signed(document)["digest"]:
            raise ValueError("its digest does not match: the file was modified")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{address}/{METADATA} is damaged, or of another version of PAPA "
            f"({in_one_line(error)})",
            address,
        ) from None
    if isinstance(artifact, ArtifactReference) and artifact.digest != digest_of(document):
        raise ArtifactError(f"{address} was replaced by another artifact meanwhile: run again")
    return document


def digest_of(metadata: Metadata) -> str:
    """Return the digest of an artifact's files."""
    return sha256_of_json(metadata["files"])


def metadata_below(address: Address) -> dict[str, Metadata]:
    """Return the metadata of every complete artifact directly below ``address``, by name."""
    there = (name.split("/") for name in Files(address).find())
    names = [path[0] for path in there if path[1:] == [METADATA] and path[0][0] != "."]

    def read(name: str) -> Metadata:
        with suppress(DamagedError):
            return read_metadata(f"{address}/{name}")
        return {}

    return {name: metadata for name, metadata in in_threads(read, names).items() if metadata}


def in_threads(
    function: Callable[[_Value], _Result], values: Iterable[_Value]
) -> dict[_Value, _Result]:
    """Return ``function`` of each value, computed in threads; after an error no other is begun."""
    values = list(values)
    with ThreadPoolExecutor(_LOOKUP_THREADS) as threads:
        return dict(zip(values, threads.map(function, values), strict=True))


def verified(artifact: ArtifactReference | Address, *needed: str) -> Path:
    """Return the folder with an artifact's files, the ``needed`` ones among them, each checked
    against its digest. What lies behind a URI is downloaded once a machine.
    """
    address = artifact.path if isinstance(artifact, ArtifactReference) else artifact
    files = Files(address)
    metadata = read_metadata(artifact)
    if files.folder is not None:
        folder = files.folder
        # In folders for people the files lie beside the metadata.
        if (folder / metadata["data"]).exists():
            folder /= metadata["data"]
        check_files(folder, metadata, address, *needed)
        return folder
    folder = cache_folder() / "artifacts" / digest_of(metadata)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with (
                scratch_beside(folder) as scratch,
                files.access(metadata["data"]) as (system, path),
            ):
                assert system is not None
                copies = {f"{path}/{name}": str(scratch / name) for name in metadata["files"]}
                with suppress(FileNotFoundError):
                    system.get([*copies], [*copies.values()])
                scratch.rename(folder)
        try:
            check_files(folder, metadata, address, *needed)
        except DamagedError:
            shutil.rmtree(folder)
            raise
    return folder


def check_files(folder: Path, metadata: Metadata, address: object, *needed: str) -> None:
    """Check the files in ``folder`` against the metadata, which must name the ``needed`` ones."""
    missing = [name for name in needed if name not in metadata["files"]]
    if missing:
        raise DamagedError(f"{address}/{METADATA} names no {joined(missing)}", address)
    for name, expected in metadata["files"].items():
        check_file(folder / name, expected, f"{address}/{name}", address)


def check_file(path: Path, expected: str, name: str, address: object) -> None:
    """Check one file of an artifact against its digest; a link is refused. Raises a DamagedError
    that names ``name``, of the artifact at ``address``.
    """
    digest = "no such file"
    refuse_links(path)
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        digest = sha256_of_file(path)
    if digest != expected:
        raise DamagedError(
            f"{name} is damaged (expected SHA-256 {expected[:12]}, found {digest[:12]})", address
        )


def remove(address: Address) -> None:
    """Remove what is there, if anything; metadata first, so that no part is taken for complete."""
    for name in (METADATA, ""):
        Files(address).remove(name)
