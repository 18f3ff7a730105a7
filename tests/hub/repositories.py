"""What the hub on loopback holds: repositories with commits, branches and readers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["models", "datasets"]
Access = Literal["public", "private", "gated"]
LARGE = (".bin", ".safetensors", ".parquet", ".h5", ".msgpack", ".ot", ".onnx", ".model")
"""Files that the hub keeps in a storage of its own and answers with a redirect to it."""


@dataclass
class Repository:
    """A model or dataset repository.

    Attributes:
        commits: each commit's folder. It must not change once it is published.
        branches: each branch's (or tag's) commit; names such as ``refs/convert/parquet`` are
            branches, too.
        access: who may read: private ones show nothing without the token, gated ones all but their
            files.
    """

    kind: Kind
    name: str
    commits: dict[str, Path] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    access: Access = "public"

    def publish(self, folder: Path, branch: str = "main") -> str:
        """Make the folder's content the branch's newest commit; returns the commit."""
        files = [f"{path.relative_to(folder)} {digest_of(path)}" for path in _files(folder)]
        commit = hashlib.sha1("\n".join([self.name, *files]).encode()).hexdigest()
        self.commits[commit] = folder
        self.branches[branch] = commit
        return commit

    def split(self, path: str) -> tuple[str | None, str]:
        """The commit and the rest of ``<branch or commit>/<rest>``; no commit where no revision
        fits.
        """
        for revision in sorted([*self.branches, *self.commits], key=len, reverse=True):
            if path == revision or path.startswith(f"{revision}/"):
                return self.branches.get(revision, revision), path[len(revision) + 1 :]
        return None, path

    def info(self, commit: str) -> dict[str, Any]:
        """The answer about a revision."""
        return {
            "id": self.name,
            "sha": commit,
            "private": self.access == "private",
            "gated": "manual" if self.access == "gated" else False,
            "tags": [],
            "siblings": [{"rfilename": entry["path"]} for entry in self.tree(commit)],
        }

    def tree(self, commit: str) -> list[dict[str, Any]]:
        """All files at a commit, as the hub's listings describe them."""
        root, entries = self.commits[commit], []
        for path in _files(root):
            size, place = path.stat().st_size, str(path.relative_to(root))
            entry = {"type": "file", "oid": etag_of(path)[:40], "size": size, "path": place}
            if path.name.endswith(LARGE):
                entry["lfs"] = {"oid": digest_of(path), "size": size, "pointerSize": 134}
            entries.append(entry)
        return entries


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def etag_of(path: Path) -> str:
    """SHA-256 of a large file, git's SHA-1 of any other."""
    if path.name.endswith(LARGE):
        return digest_of(path)
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
