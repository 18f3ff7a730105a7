"""What lies in a store and serves nothing: artifacts that no result was made from, and what killed
runs left.

An artifact's metadata names the steps that it was built from (``inputs``); whatever the results of
studies reach is in use. Only what bears a name that PAPA gives is ever unused, and no link is
followed; all else is somebody's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from papa.storage.artifacts import DIGEST, METADATA, metadata_below
from papa.storage.files import MARK, Files, StoredFile
from papa.storage.store import Store, users

_ARTIFACT = re.compile(rf"(?P<step>[a-z_-]+/(\.{DIGEST}\.{MARK}|{DIGEST}))/(?P<part>[^/]+).*")
_PART = re.compile(rf"{DIGEST}|\..+\.{MARK}")
_LEFT = {"scratch": r"features-\w{16}", "studies": rf"\..+\.{MARK}"}
_KILLED = "left by a run that was killed"


@dataclass(frozen=True)
class Unused:
    """Something that serves nothing, why, and when it was last written, in seconds since 1970."""

    address: str
    name: str
    reason: str
    size: int
    modified: float

    @classmethod
    def of(cls, files: list[StoredFile], address: str, name: str, reason: str) -> Unused:
        """What these files are."""
        newest = max(file.modified for file in files)
        return cls(address, name, reason, sum(file.size for file in files), newest)


def survey(store: Store) -> list[Unused]:
    """Look through artifacts, scratch, unfinished copies of results and words of processes."""
    found = _artifacts(store)
    for folder, names in _LEFT.items():
        for path in sorted((store.root / folder).glob("*")):
            if re.fullmatch(names, path.name) and not path.is_symlink():
                files = Files(path).find() or [StoredFile("", 0, path.stat().st_mtime)]
                found.append(Unused.of(files, str(path), "scratch", _KILLED))
    for file, runs in users(store).items():
        if not runs:
            address = f"{store.runs}/{file.path}"
            found.append(Unused.of([file], address, "run", "its process was killed"))
    return found


def _artifacts(store: Store) -> list[Unused]:
    files = store.files.find("artifacts")
    matches = [(file, match) for file in files if (match := _ARTIFACT.fullmatch(file.path))]
    known = {
        f"{stage}/{key}": document
        for stage in {match["step"].partition("/")[0] for _, match in matches}
        for key, document in metadata_below(f"{store.artifacts}/{stage}").items()
    }
    used, reached = set[str](), [name for name in known if name.startswith("aggregate/")]
    while reached:
        if (name := reached.pop()) not in used:
            used.add(name)
            reached += known.get(name, {}).get("inputs", ())
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
        Unused.of(inside, f"{store.artifacts}/{place}", name, reason)
        for (place, name, reason), inside in sorted(groups.items())
    ]
