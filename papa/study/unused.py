"""What lies in a store and serves nothing: artifacts that no result was made from, and what killed
runs left.

An artifact's metadata names the steps that it was built from (``inputs``); whatever the results of
studies reach is in use. Only what bears a name that PAPA gives is ever unused, and no link is
followed; all else is somebody's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papa.storage.artifacts import metadata_below
from papa.storage.atomic import MARK
from papa.storage.files import Files, StoredFile
from papa.storage.metadata import DIGEST, METADATA
from papa.study.store import Store, running, words_of

_ARTIFACT = re.compile(rf"(?P<step>[a-z_-]+/(\.{DIGEST}\.{MARK}|{DIGEST}))/(?P<part>[^/]+).*")
_PART = re.compile(rf"{DIGEST}|\..+\.{MARK}")
_LEFT = {"scratch": r"features-\w{16}|\.driver\.\w+", "studies": rf"\..+\.{MARK}"}
_KILLED = "left by a run that was killed"


@dataclass(frozen=True)
class Unused:
    """Something that serves nothing, why, and when it was last written, in seconds since 1970."""

    address: str
    name: str
    reason: str
    size: int
    modified: float


def survey(store: Store) -> list[Unused]:
    """Look through artifacts, scratch, unfinished copies of results and words of processes."""
    found = _artifacts(store)
    for folder, names in _LEFT.items():
        for path in sorted((store.root / folder).glob("*")):
            if re.fullmatch(names, path.name) and not path.is_symlink():
                inside = Files(path).find() or [StoredFile("", 0, path.stat().st_mtime)]
                found.append(_unused(str(path), "scratch", _KILLED, inside))
    alive, now = running(store), time.time()
    ended = {name: age for name, age in words_of(store).items() if name not in alive}
    for name, age in ended.items():
        found.append(Unused(f"{store.runs}/{name}", "run", "its process was killed", 0, now - age))
    return found


def _artifacts(store: Store) -> list[Unused]:
    files = store.files.find("artifacts")
    matches = [(file, match) for file in files if (match := _ARTIFACT.fullmatch(file.path))]
    known = {
        f"{stage}/{key}": document
        for stage in {match["step"].partition("/")[0] for _, match in matches}
        for key, document in metadata_below(f"{store.artifacts}/{stage}").items()
    }
    used = _reached(known)
    groups: dict[tuple[str, str, str], list[StoredFile]] = {}
    for file, match in matches:
        step, part = match["step"], match["part"]
        stage, document = step.partition("/")[0], known.get(step)
        if document is None:
            group = step, stage, f"damaged, or {_KILLED}"
        elif step not in used:
            group = step, str(document.get("name", stage)), "nothing refers to it"
        elif part not in (METADATA, document["digest"]) and _PART.fullmatch(part):
            group = f"{step}/{part}", stage, _KILLED
        else:
            continue
        groups.setdefault(group, []).append(file)
    return [
        _unused(f"{store.artifacts}/{place}", name, reason, inside)
        for (place, name, reason), inside in sorted(groups.items())
    ]


def _reached(known: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The artifacts that results reach, results among them; each as stage/key."""
    todo = [name for name in known if name.startswith("aggregate/")]
    reached: set[str] = set()
    while todo:
        if (name := todo.pop()) not in reached:
            reached.add(name)
            todo += known.get(name, {}).get("inputs", ())
    return reached


def _unused(address: str, name: str, reason: str, files: list[StoredFile]) -> Unused:
    newest = max(file.modified for file in files)
    return Unused(address, name, reason, sum(file.size for file in files), newest)
