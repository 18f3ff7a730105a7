"""What lies in a store and serves nothing: artifacts that no result was made from, and what killed
runs left.

An artifact's metadata names the steps that it was built from (``inputs``); whatever the results of
studies reach is in use. Only what bears a name that PAPA gives is ever unused, and no link is
followed; all else is somebody's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papa.storage.artifacts import metadata_below
from papa.storage.atomic import MARK
from papa.storage.cache import cache_folder
from papa.storage.files import Files, StoredFile
from papa.storage.metadata import DIGEST, METADATA
from papa.study.store import Store

_RESULTS = ("aggregate", "track")
_STAGE = r"[a-z]+(?:[-_][a-z]+)*"
_ARTIFACT = re.compile(rf"(?P<step>{_STAGE}/\.*(?P<key>{DIGEST})(?:\.{MARK})*)/(?P<file>.+)")
_OURS = {
    "scratch": rf"\.*(features-\w{{16}}|papa-ray-\w+|\.writable\.\d+|\.driver\.\w+)(\.{MARK})*",
    "locks": rf"((?P<step>{_STAGE}-{DIGEST})|study-(?P<study>.+)|mlflow)\.lock",
    "studies": rf"\..+\.{MARK}(\.old)?",
}
_KILLED = "left by a run that was killed"


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
    for name, ours in _OURS.items():
        for path in sorted((store.root / name).glob("*")):
            match = re.fullmatch(ours, path.name)
            if path.is_symlink() or not match:
                if name != "studies":
                    found.foreign.append(str(path))
            elif name != "locks":
                found.unused.append(_unused(str(path), "scratch", _KILLED, _below(path)))
            elif (match["step"] and match["step"] not in kept) or (
                match["study"] and not store.study(match["study"]).exists()
            ):
                reason = "of what is not kept"
                found.unused.append(_unused(str(path), "lock", reason, _below(path)))
    for path in sorted((cache_folder() / "scratch").glob(".*")) if store.is_remote else ():
        found.unused.append(_unused(str(path), "scratch", _KILLED, _below(path)))
    return found


def _artifacts(store: Store, found: Findings) -> set[str]:
    """Sort what lies below ``artifacts``; returns what stays, each as stage-key."""
    groups: dict[str, list[StoredFile]] = {}
    foreign = set()
    for file in store.files.find("artifacts"):
        if match := _ARTIFACT.fullmatch(file.path):
            groups.setdefault(match["step"], []).append(file)
        else:
            foreign.add("/".join(file.path.split("/")[:2]))
    found.foreign.extend(f"{store.artifacts}/{name}" for name in sorted(foreign))
    known = {
        f"{stage}/{key}": document
        for stage in sorted({step.partition("/")[0] for step in groups})
        for key, document in metadata_below(f"{store.artifacts}/{stage}").items()
    }
    used = _reached(known)
    for step, files in sorted(groups.items()):
        address, stage, document = (
            f"{store.artifacts}/{step}",
            step.partition("/")[0],
            known.get(step),
        )
        if document is None:
            damaged = any(file.path == f"{step}/{METADATA}" for file in files)
            reason = "damaged, or of an older PAPA" if damaged else _KILLED
            found.unused.append(_unused(address, stage, reason, files))
        elif step not in used:
            name = document.get("name") or f"{stage} · {document.get('task', step)}"
            found.unused.append(_unused(address, name, "nothing refers to it", files))
        else:
            others: dict[str, list[StoredFile]] = {}
            for file in files:
                part = file.path.removeprefix(f"{step}/").partition("/")[0]
                if part != document["digest"] and re.fullmatch(rf"{DIGEST}|\..+\.{MARK}", part):
                    others.setdefault(part, []).append(file)
            for part, left in others.items():
                found.unused.append(_unused(f"{address}/{part}", stage, _KILLED, left))
    return {step.replace("/", "-") for step in used}


def _reached(known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The artifacts that results reach, results among them; each as stage/key."""
    todo = [name for name, document in known.items() if document.get("stage") in _RESULTS]
    reached: set[str] = set()
    while todo:
        if (name := todo.pop()) not in reached:
            reached.add(name)
            todo += known.get(name, {}).get("inputs", ())
    return reached


def _below(path: Path) -> list[StoredFile]:
    status = path.lstat()
    return Files(path).find() or [StoredFile(path.name, status.st_size, status.st_mtime)]


def _unused(address: str, name: str, reason: str, files: list[StoredFile]) -> Unused:
    newest = max(file.modified for file in files)
    return Unused(address, name, reason, sum(file.size for file in files), newest)
