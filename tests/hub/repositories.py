"""What the hub on loopback holds: repositories with commits, branches and readers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["models", "datasets"]
Access = Literal["public", "private", "gated"]
LARGE = (
    ".bin", ".safetensors", ".parquet", ".h5", ".msgpack", ".ot", ".onnx", ".model", ".arrow",
    ".zip", ".gz",
)  # fmt: skip
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
        entries = [
            entry["path"] for entry in self.tree(commit, recursive=True) if entry["type"] == "file"
        ]
        return {
            "_id": hashlib.sha1(self.name.encode()).hexdigest()[:24],
            "id": self.name,
            "sha": commit,
            "private": self.access == "private",
            "gated": "manual" if self.access == "gated" else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "createdAt": "2022-03-02T23:29:04.000Z",
            "lastModified": "2024-02-19T11:06:12.000Z",
            "siblings": [{"rfilename": path} for path in entries],
        }

    def tree(self, commit: str, below: str = "", recursive: bool = False) -> list[dict[str, Any]]:
        """Files and folders at a commit, below a folder."""
        root = self.commits[commit]
        found = (root / below).rglob("*") if recursive else (root / below).iterdir()
        return [self.entry(commit, str(path.relative_to(root))) for path in sorted(found)]

    def entry(self, commit: str, name: str) -> dict[str, Any]:
        """A file or folder as the hub's listings describe it."""
        path = self.commits[commit] / name
        last = {"id": commit, "title": "Upload", "date": "2024-02-19T11:06:12.000Z"}
        if path.is_dir():
            oid = hashlib.sha1(f"{commit} {name}".encode()).hexdigest()
            return {"type": "directory", "oid": oid, "size": 0, "path": name, "lastCommit": last}
        size = path.stat().st_size
        entry = {
            "type": "file",
            "oid": etag_of(path)[:40],
            "size": size,
            "path": name,
            "lastCommit": last,
        }
        if name.endswith(LARGE):
            entry["lfs"] = {"oid": digest_of(path), "size": size, "pointerSize": 134}
        return entry

    def refs(self) -> dict[str, list[dict[str, str]]]:
        """Branches and converted branches."""
        found: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": []}
        for name, commit in self.branches.items():
            converted = name.startswith("refs/convert/")
            reference = name if converted else f"refs/heads/{name}"
            short = name.removeprefix("refs/convert/")
            found["converts" if converted else "branches"].append(
                {"name": short, "ref": reference, "targetCommit": commit}
            )
        return found


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
