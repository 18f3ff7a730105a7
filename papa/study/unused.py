"""What lies in a store and serves nothing: artifacts that nothing refers to, and what killed runs
left.

An artifact's metadata names the steps that it was built from (``inputs``). The results of studies
and what was logged of them (stages ``aggregate`` and ``track``) are what counts; whatever they
reach is in use.

Only what bears a name that PAPA gives is ever unused; all else is somebody's own. Symbolic links
are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.storage.artifacts import metadata_below, store_at
from papa.storage.atomic import MARK
from papa.storage.interface import StoredFile
from papa.storage.metadata import METADATA
from papa.study.store import KEY, STAGE, Store

_RESULTS = ("aggregate", "track")
_SHARDS = "average-shards"
_ARTIFACT = re.compile(f"{STAGE}/{KEY}")
_STUDY = re.compile(rf"\..+\.{MARK}(\.old)?")
_SCRATCH = re.compile(
    rf"\.*(features-[0-9a-f]{{16}}|papa-ray-\w+|\.writable\.\d+|\.driver\.[0-9a-f]{{32}})(\.{MARK})*"
)
_ON_THE_WAY = re.compile(rf".+\.{MARK}")
_LOCK = re.compile(
    rf"(?P<stage>{STAGE})-(?P<key>{KEY})\.lock|study-(?P<study>.+)\.lock|prefect-server\.lock"
)
_KILLED = "left by a run that was killed"
_DAMAGED = "damaged, or of an older PAPA"


@dataclass(frozen=True)
class Unused:
    """Something that serves nothing, why, and when it was last written, in seconds since 1970."""

    address: str
    name: str
    reason: str
    size: int
    modified: float


@dataclass(frozen=True)
class Findings:
    """What a look through a store found: what serves nothing, and addresses of what lies among
    PAPA's things and bears no name that PAPA gives.
    """

    unused: list[Unused]
    foreign: list[str]


def survey(store: Store) -> Findings:
    """Look through artifacts, scratch, locks and unfinished copies of results."""
    found = Findings([], [])
    kept = _artifacts(store, found)
    found.unused.extend(_on_disk(path, "scratch", _KILLED) for path in _never_filled(store))
    for folder, names in ((store.scratch, _SCRATCH), *_further_scratch(store)):
        for path in _inside(folder):
            if names.fullmatch(path.name) and not path.is_symlink():
                found.unused.append(_on_disk(path, "scratch", _KILLED))
            elif names is not _STUDY:
                found.foreign.append(str(path))
    for path in _inside(store.locks):
        lock = None if path.is_symlink() or not path.is_file() else _LOCK.fullmatch(path.name)
        if lock is None:
            found.foreign.append(str(path))
        elif lock["key"] and f"{lock['stage']}/{lock['key']}" not in kept:
            found.unused.append(_on_disk(path, "lock", "of a step whose result is not kept"))
        elif lock["study"] and not store.study(lock["study"]).exists():
            found.unused.append(_on_disk(path, "lock", "of a study without results"))
    return found


def _artifacts(store: Store, found: Findings) -> set[str]:
    """Sort what lies below ``artifacts``; returns what stays, each as stage/key."""
    groups = _grouped(store.backend.files("artifacts"), lambda path: "/".join(path.split("/")[:2]))
    whole = {
        folder
        for folder, files in groups.items()
        # It may be a file or a link itself.
        if _ARTIFACT.fullmatch(folder) and all(file.path != folder for file in files)
    }
    stages = {folder.partition("/")[0] for folder in whole}
    known = {
        f"{stage}/{key}": document
        for stage in sorted(stages - {_SHARDS})
        for key, document in metadata_below(f"{store.artifacts}/{stage}").items()
    }
    used = _reached(known)
    kept, foreign = set(), set()
    for folder, files in groups.items():
        address, (stage, _, key) = f"{store.artifacts}/{folder}", folder.partition("/")
        document = known.get(folder)
        if folder not in whole:
            left = _left_by_writers(store, stage, files)
            found.unused.extend(left)
            if not left:
                foreign.add(address if stage in stages else f"{store.artifacts}/{stage}")
        elif stage == _SHARDS:
            found.unused.append(_unused(address, stage, "an average that was not finished", files))
        elif document is None:
            damaged = any(file.path == f"{folder}/{METADATA}" for file in files)
            found.unused.append(_unused(address, stage, _DAMAGED if damaged else _KILLED, files))
        elif folder not in used:
            name = document.get("name") or f"{stage} · {document.get('task', key)}"
            found.unused.append(_unused(address, name, "nothing refers to it", files))
        else:
            kept.add(folder)
            found.unused.extend(
                _left_by_writers(store, stage, files, f"{key}/{document['digest']}")
            )
    found.foreign.extend(sorted(foreign))
    return kept


def _reached(known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The artifacts that results reach, results among them; each as stage/key."""
    todo = [name for name, document in known.items() if document.get("stage") in _RESULTS]
    reached: set[str] = set()
    while todo:
        if (name := todo.pop()) not in reached:
            reached.add(name)
            todo += known.get(name, {}).get("inputs", ())
    return reached


def _left_by_writers(
    store: Store, stage: str, files: Iterable[StoredFile], data: str | None = None
) -> list[Unused]:
    """What killed writers left, also what came second; ``data`` is the artifact's in place."""
    if not re.fullmatch(STAGE, stage):
        return []

    def part(path: str) -> str:
        match = store.backend.killed.fullmatch(path.removeprefix(f"{stage}/"))
        return match[1] if match else ""

    groups = _grouped(files, part)
    return [
        _unused(f"{store.artifacts}/{stage}/{name}", stage, _KILLED, group)
        for name, group in groups.items()
        if name not in ("", data)
    ]


def _never_filled(store: Store) -> list[Path]:
    """Empty folders of killed writers on this disk; a listing of files does not show them."""
    if store.is_remote:
        return []
    hidden = sorted(Path(store.artifacts).glob("*/.*"))
    folders = [
        path
        for path in hidden
        if not path.is_symlink() and path.is_dir() and not any(path.iterdir())
    ]
    return [path for path in folders if store.backend.killed.fullmatch(f"{path.name}/{METADATA}")]


def _further_scratch(store: Store) -> list[tuple[Path, re.Pattern[str]]]:
    """Folders beside the store's scratch in which killed runs leave something, by which names."""
    on_the_way = store.backend.machine_scratch
    return [(store.root / "studies", _STUDY), *([(on_the_way, _ON_THE_WAY)] if on_the_way else [])]


def _inside(folder: Path) -> list[Path]:
    return [] if folder.is_symlink() or not folder.is_dir() else sorted(folder.iterdir())


def _grouped(files: Iterable[StoredFile], key: Callable[[str], str]) -> dict[str, list[StoredFile]]:
    groups: dict[str, list[StoredFile]] = {}
    for file in files:
        groups.setdefault(key(file.path), []).append(file)
    return dict(sorted(groups.items()))


def _on_disk(path: Path, name: str, reason: str) -> Unused:
    status = path.lstat()
    files = list(store_at(path).files()) or [StoredFile(path.name, status.st_size, status.st_mtime)]
    return _unused(str(path), name, reason, files)


def _unused(address: str, name: str, reason: str, files: Iterable[StoredFile]) -> Unused:
    files = list(files)
    newest = max(file.modified for file in files)
    return Unused(address, name, reason, sum(file.size for file in files), newest)
