"""What lies in a store and serves nothing: artifacts that no result was made from, and what killed
runs left.

Metadata name the steps that an artifact was built from (``inputs``); what results reach is in use.
Only what bears a name that PAPA gives is ever unused, and no link is followed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from papa.storage.files import Files
from papa.storage.store import Store

_ASIDE = r"\..+\.\d+\.[0-9a-f]{8}"
_PART = rf"[0-9a-f]{{32}}|{_ASIDE}"
_ARTIFACT = re.compile(r"([a-z_-]+)/([0-9a-f]{64})/([^/]+).*")
_LEFT = {"scratch": r"features-\w{16}", "studies": _ASIDE, "": _ASIDE}
_KILLED = "left by a run that was killed"


class Unused(NamedTuple):
    """Something that serves nothing, why, and when it was last written, in seconds since 1970."""

    address: str
    name: str
    reason: str
    size: int
    modified: float


def survey(store: Store) -> list[Unused]:
    """Look through artifacts, scratch and unfinished copies of results."""
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    files = store.files.find("artifacts")
    matches = {name: match for name in files if (match := _ARTIFACT.fullmatch(name))}
    known = {
        f"{stage}/{key}": metadata
        for stage in {match[1] for match in matches.values()}
        for key, metadata in store.metadata(stage).items()
    }
    used, reached = set[str](), [name for name in known if name.startswith("aggregate/")]
    while reached:
        if (name := reached.pop()) not in used:
            used.add(name)
            reached += known.get(name, {}).get("inputs", ())
    for name, match in matches.items():
        stage, key, part = match.groups()
        step, metadata = f"{stage}/{key}", known.get(f"{stage}/{key}")
        address = f"{store.artifacts}/{step}"
        if metadata is None:
            groups[address, stage, f"damaged, or {_KILLED}"].append(files[name])
        elif step not in used:
            groups[address, str(metadata.get("name")), "nothing refers to it"].append(files[name])
        elif part != metadata["data"] and re.fullmatch(_PART, part):
            groups[f"{address}/{part}", stage, _KILLED].append(files[name])
    for folder, names in _LEFT.items():
        for path in (store.root / folder).glob("*"):
            if re.fullmatch(names, path.name) and not path.is_symlink():
                inside = Files(path).find().values() or [(0, path.stat().st_mtime)]
                groups[str(path), "scratch", _KILLED] += inside
    return [
        Unused(*group, sum(size for size, _ in inside), max(moment for _, moment in inside))
        for group, inside in sorted(groups.items())
    ]
