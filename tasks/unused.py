"""What lies in a store and serves nothing: artifacts that nothing refers to, and what killed runs left.

An artifact's metadata names the digests of what it was built from (``upstream``, ``origins``). The results of studies
and what was logged of them (stages ``aggregate`` and ``track``) are what counts; whatever they reach is in use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from papa.artifacts import metadata_below, remove, stored_below
from papa.cache import cache_folder
from papa.metadata import METADATA
from papa.remote import StoredFile
from tasks.store import Store

_RESULTS = ("aggregate", "track")
_SHARDS = "average-shards"
_SCRATCH = re.compile(r"\..+\.\d+\.[0-9a-f]{8}(\.old)?")
"""Names of scratch folders: of what, by which process, a random mark."""


@dataclass(frozen=True)
class Unused:
    """Something that serves nothing.

    Attributes:
        address: where it lies.
        name: what people call it.
        reason: why it serves nothing.
        size: in bytes.
        modified: when it was last written, in seconds since 1970.
    """

    address: str
    name: str
    reason: str
    size: int
    modified: float


def unused(store: Store) -> list[Unused]:
    """Everything in a store that serves nothing, stage by stage.

    Raises:
        ArtifactError: the store cannot be used.
        TransientError: it does not answer.
    """
    files = [file for file in stored_below(store.artifacts) if file.path.count("/") > 1]
    stages = sorted({file.path.partition("/")[0] for file in files})
    known = {stage: metadata_below(f"{store.artifacts}/{stage}") for stage in stages if stage != _SHARDS}
    used = _reached(document for documents in known.values() for document in documents.values())
    found: list[Unused] = []
    for place, group in _grouped(files, lambda path: "/".join(path.split("/")[:2])).items():
        stage, _, key = place.partition("/")
        document = known.get(stage, {}).get(key)
        if stage == _SHARDS:
            found.append(_unused(f"{store.artifacts}/{place}", stage, "an average that was not finished", group))
        elif document is None:
            found.append(_unused(f"{store.artifacts}/{place}", stage, "left by a run that was killed", group))
        elif document["digest"] not in used:
            name = document.get("name") or f"{stage} · {document.get('task', key)}"
            found.append(_unused(f"{store.artifacts}/{place}", name, "nothing refers to it", group))
        elif store.is_remote:
            found += _superseded(f"{store.artifacts}/{place}", stage, document["digest"], group)
    return [*found, *_scratch(store)]


def delete(one: Unused) -> None:
    """Remove it.

    Raises:
        ArtifactError: the store cannot be used.
        TransientError: it does not answer.
    """
    remove(one.address)


def _reached(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    """The digests of all artifacts that results reach, results among them."""
    origins: dict[str, set[str]] = {}
    todo = []
    for document in documents:
        named = {*document.get("upstream", {}).values(), *document.get("origins", ())}
        origins.setdefault(document["digest"], set()).update(digest for digest in named if digest)
        if document.get("stage") in _RESULTS:
            todo.append(document["digest"])
    reached: set[str] = set()
    while todo:
        digest = todo.pop()
        if digest not in reached:
            reached.add(digest)
            todo += origins.get(digest, ())
    return reached


def _superseded(address: str, stage: str, digest: str, files: Iterable[StoredFile]) -> list[Unused]:
    """Data beside the published ones: of a writer that was killed, or that came second and was."""
    groups = _grouped(files, lambda path: path.split("/")[2])
    return [
        _unused(f"{address}/{name}", stage, "left by a run that was killed", group)
        for name, group in groups.items()
        if name not in (digest, METADATA)
    ]


def _scratch(store: Store) -> list[Unused]:
    """What killed runs left on this machine."""
    places = [*store.scratch.glob("*"), *(one for one in store.root.glob("studies/.*") if _SCRATCH.fullmatch(one.name))]
    if store.is_remote:
        places += (cache_folder() / "scratch").glob("*")
    found = []
    for place in sorted(places):
        status = place.lstat()
        files = stored_below(place) or [StoredFile(place.name, status.st_size, status.st_mtime)]
        found.append(_unused(str(place), "scratch", "left by a run that was killed", files))
    return found


def _grouped(files: Iterable[StoredFile], key: Callable[[str], str]) -> dict[str, list[StoredFile]]:
    groups: dict[str, list[StoredFile]] = {}
    for file in files:
        groups.setdefault(key(file.path), []).append(file)
    return dict(sorted(groups.items()))


def _unused(address: str, name: str, reason: str, files: Iterable[StoredFile]) -> Unused:
    files = list(files)
    return Unused(address, name, reason, sum(file.size for file in files), max(file.modified for file in files))
