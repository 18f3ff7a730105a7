"""What lies in a store and serves nothing: artifacts that no result reaches by the ``inputs`` of
metadata, and what killed runs left. Only what bears a name that PAPA gives is ever unused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from papa.storage.artifacts import metadata_below
from papa.storage.files import Files
from papa.storage.store import Store

_ASIDE = r"\..+\.\d+\.[0-9a-f]{8}"
_ARTIFACT = re.compile(rf"([a-z_-]+/[0-9a-f]{{64}})/(?:([0-9a-f]{{32}}|{_ASIDE})/)?.+")
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
        for stage in {name.partition("/")[0] for name in matches}
        for key, metadata in metadata_below(f"{store.artifacts}/{stage}").items()
    }
    used, reached = set[str](), [step for step in known if step.startswith("aggregate/")]
    while reached:
        if (step := reached.pop()) not in used:
            used.add(step)
            reached += known.get(step, {}).get("inputs", ())
    for name, match in matches.items():
        step, part = match.groups()
        address, stage = f"{store.artifacts}/{step}", step.partition("/")[0]
        if (metadata := known.get(step)) is None:
            groups[address, stage, f"damaged, or {_KILLED}"].append(files[name])
        elif step not in used:
            groups[address, str(metadata.get("name")), "nothing refers to it"].append(files[name])
        elif part and part != metadata["data"]:
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
