"""What of a store a study uses, and what nothing does: artifacts that no result reaches by the
``inputs`` of metadata, and what killed runs left. Only what bears a name that PAPA gives is unused.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from papa.storage.artifacts import SHARDS, metadata_below
from papa.storage.files import Files, bytes_on_disk
from papa.storage.store import Store

_ASIDE = r"\..+\.\d+\.[0-9a-f]{8}"
_IN_ARTIFACT = rf"(?:[0-9a-f]{{32}}|{SHARDS})(?=/)|{_ASIDE}$"
_ARTIFACT = re.compile(rf"([a-z_-]+/[0-9a-f]{{64}})/({_IN_ARTIFACT})?.*")
_LEFTOVERS = {"scratch": r"features-\w{16}-\d+", "studies": _ASIDE, "": _ASIDE}
_KILLED = "left by a run that was killed"


class Unused(NamedTuple):
    """Something that serves nothing, why, and when it was last written, in seconds since 1970."""

    address: str
    name: str
    reason: str
    size: int
    modified: float


class Contents:
    """The artifacts of a store by step, as ``stage/key``: metadata, and of each file the folder in
    it, the size and when it was written.
    """

    def __init__(self, store: Store) -> None:
        self._artifacts = store.artifacts
        self.files: dict[str, list[tuple[str | None, int, float]]] = defaultdict(list)
        for name, (size, modified) in store.files.find("artifacts").items():
            match = _ARTIFACT.fullmatch(name)
            if match:
                self.files[match[1]].append((match[2], size, modified))
        self.metadata = {
            f"{stage}/{key}": metadata
            for stage in {step.partition("/")[0] for step in self.files}
            for key, metadata in metadata_below(f"{store.artifacts}/{stage}").items()
        }

    def used_by(self, wanted: Callable[[str], bool]) -> dict[str, int]:
        """Return the steps that results of ``wanted`` studies were made from, with their bytes."""
        used: dict[str, int] = {}
        results = (step for step in self.metadata if step.startswith("aggregate/"))
        names = {step: str(self.metadata[step].get("name")).partition(" · ")[2] for step in results}
        waiting = [step for step, name in names.items() if wanted(name)]
        while waiting:
            step = waiting.pop()
            if step not in used:
                sizes = (size for _, size, _ in self.files.get(step, ()))
                used[step] = _bytes_at(f"{self._artifacts}/{step}", sizes)
                waiting += self.metadata.get(step, {}).get("inputs", ())
        return used


def _bytes_at(address: str, sizes: Iterable[int]) -> int:
    """Return what files of these sizes take: on the disk of a folder, or in all behind a URI."""
    folder = Files(address).folder
    return sum(sizes) if folder is None else bytes_on_disk(folder)


def find_unused(store: Store) -> list[Unused]:
    """List the artifacts, scratch and unfinished copies of results that nothing uses."""
    groups: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    contents = Contents(store)
    used = contents.used_by(lambda study: True)
    for step, files in contents.files.items():
        address = f"{store.artifacts}/{step}"
        stage = step.partition("/")[0]
        metadata = contents.metadata.get(step)
        for folder, size, modified in files:
            if metadata is None:
                group = address, stage, f"damaged, or {_KILLED}"
            elif step not in used:
                group = address, str(metadata.get("name")), "nothing refers to it"
            elif folder and folder != metadata["data"]:
                group = f"{address}/{folder}", stage, _KILLED
            else:
                continue
            groups[group].append((size, modified))
    for name, pattern in _LEFTOVERS.items():
        for path in (store.root / name).glob("*"):
            if re.fullmatch(pattern, path.name) and not path.is_symlink():
                sizes = Files(path).find().values() or [(0, path.stat().st_mtime)]
                groups[str(path), "scratch", _KILLED] += sizes
    return [
        Unused(
            *group,
            size=_bytes_at(group[0], (size for size, _ in files)),
            modified=max(modified for _, modified in files),
        )
        for group, files in sorted(groups.items())
    ]
