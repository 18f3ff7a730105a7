"""The artifact store: all that a study makes, in a folder or behind a URI.

::

    <store>/papa-store.json            says that it is one
    <store>/artifacts/<stage>/<key>/   one artifact a finished step
    <store>/runs/                      which studies use the store just now
    <root>/studies/<name>/             a study's results, for people
    <root>/prefect/                    Prefect's database and results
    <root>/mlflow.db, mlartifacts/     MLflow's runs
    <root>/scratch/                    what is only needed while a step runs
    <root>/locks/                      held while a step runs

In a folder, root is the store itself. Behind a URI such as ``s3://bucket/prefix`` lie the artifacts alone, for every
machine; each keeps a root of its own in its cache.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError
from papa.storage.artifacts import (
    Address,
    ArtifactReference,
    is_complete,
    metadata_below,
    reference,
    sha256_of_json,
    stored_below,
)
from papa.storage.cache import cache_folder, local_name
from papa.storage.filesystem import check, filesystem, is_uri, read, storage_errors


def cache_key(stage: str, version: int, spec: Mapping[str, Any], upstream: Mapping[str, str | None]) -> str:
    """What identifies a step's result: stage, the stage's version, its part of the spec, what it builds on.

    Args:
        spec: the part of the specification that the stage reads; nothing that only changes speed.
        upstream: digests of what it builds on, by name.
    """
    return sha256_of_json({"stage": stage, "version": version, "spec": dict(spec), "upstream": dict(upstream)})


class Store:
    """The places in a store.

    Args:
        address: a folder, made when something is written to it; or a URI that fsspec knows.

    Attributes:
        address: the folder or URI.
        root: the store's folder on this machine.

    Raises:
        ArtifactError: the address is neither.
    """

    def __init__(self, address: Address) -> None:
        text = str(address).removeprefix("file://")
        if re.match(r"[a-z][a-z0-9+.-]+:(?!//)", text):
            raise ArtifactError(
                f"'{text}' is no address of a store: give a folder, or a URI such as s3://bucket/prefix"
            )
        self.address = text.rstrip("/") if is_uri(text) else os.path.abspath(Path(text).expanduser())
        self.root = cache_folder() / "stores" / local_name(self.address) if self.is_remote else Path(self.address)

    def __repr__(self) -> str:
        return f"Store({self.address!r})"

    @property
    def is_remote(self) -> bool:
        """Whether its artifacts lie behind a URI."""
        return is_uri(self.address)

    @property
    def artifacts(self) -> str:
        """Where artifacts lie."""
        return f"{self.address}/artifacts"

    @property
    def runs(self) -> str:
        """Where studies say that they use the store."""
        return f"{self.address}/runs"

    @property
    def prefect(self) -> Path:
        return self.root / "prefect"

    @property
    def mlflow_database(self) -> Path:
        return self.root / "mlflow.db"

    @property
    def mlflow_artifacts(self) -> Path:
        return self.root / "mlartifacts"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def locks(self) -> Path:
        return self.root / "locks"

    def study(self, name: str) -> Path:
        """Where the results of a study lie."""
        return self.root / "studies" / name

    def folder(self, stage: str, key: str) -> str:
        """The address of a step's artifact, finished or not."""
        return f"{self.artifacts}/{stage}/{key}"

    def metadata(self, stage: str) -> list[dict[str, Any]]:
        """What every finished artifact of a stage says of itself."""
        return list(metadata_below(f"{self.artifacts}/{stage}").values())

    def holds(self, stage: str, key: str) -> bool:
        """Whether the step's artifact is complete."""
        return is_complete(self.folder(stage, key))

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact.

        Raises:
            ArtifactError: it is not complete.
        """
        return reference(self.folder(stage, key))

    def check(self) -> None:
        """Check that artifacts can be read, before work starts that only reads them.

        Raises:
            ArtifactError: they cannot.
            TransientError: the store does not answer.
        """
        if self.is_remote:
            check(self.address, write=False)

    def make(self) -> None:
        """Make the store and its folder on this machine; check that artifacts can be written.

        Raises:
            ArtifactError: they cannot, the folder cannot be made, or something else lies there.
            TransientError: the store does not answer.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.is_remote:
                mark(self.address)
            self.scratch.mkdir(parents=True, exist_ok=True)
            probe = self.scratch / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError as error:
            what = "set PAPA_CACHE to another folder" if self.is_remote else "give another folder with --store"
            raise ArtifactError(f"the store {self.root} cannot be written ({error.strerror}): {what}") from None
        if self.is_remote:
            check(self.address, write=True)
            mark(self.address)


MARKER = "papa-store.json"
FORMAT = 1
STAGE = r"[a-z]+(?:-[a-z]+)*"
KEY = r"[0-9a-f]{64}"
_BEFORE = re.compile(r"\.papa-[0-9a-f]{32}|\.?mlflow\.db.*|mlartifacts")
"""What may lie in the root before the marker does: what another run puts for a moment (a marker not yet renamed, a
question whether it may write), and MLflow's runs, as ``papa compare`` and ``mlflow`` make their database, too."""


def is_marked(address: str) -> bool:
    """Whether ``address`` says that it is a store.

    Raises:
        ArtifactError: its marker is damaged, or is of another format.
    """
    files, root = filesystem(address)
    with storage_errors(address):
        data = read(files, f"{root}/{MARKER}")
    if data is None:
        return False
    try:
        found = json.loads(data)["format"]
    except (ValueError, TypeError, KeyError):
        raise ArtifactError(
            f'{address}/{MARKER} is damaged: if this is a PAPA store, write {{"format": {FORMAT}}} into it'
        ) from None
    if found != FORMAT:
        raise ArtifactError(
            f"{address} is a store of format {found}, this PAPA knows format {FORMAT}: use the version that made it"
        )
    return True


def mark(address: str) -> None:
    """Make ``address`` say that it is a store; a folder must be there.

    Raises:
        ArtifactError: it holds something else.
    """
    if is_marked(address):
        return
    # Another run marks before it writes anything else: what is neither empty nor marked by now was not its doing.
    if not (_is_empty(address) or _shows_a_store(address) or is_marked(address)):
        raise ArtifactError(
            f"{address} holds other things and no PAPA store ({MARKER} is missing): "
            "give a new or empty folder, or another prefix, with --store"
        )
    content = (json.dumps({"what": "a store of PAPA", "format": FORMAT}) + "\n").encode()
    if is_uri(address):
        files, root = filesystem(address)
        with storage_errors(address):
            files.pipe_file(f"{root}/{MARKER}", content)
    else:
        aside = Path(address) / f".papa-{uuid.uuid4().hex}"
        aside.write_bytes(content)
        aside.replace(Path(address) / MARKER)


def _is_empty(address: str) -> bool:
    if is_uri(address):
        paths = (file.path for file in stored_below(address))
    else:
        # One after the other: the first file is enough to know, however many follow.
        places = (place for place in Path(address).rglob("*") if place.is_symlink() or not place.is_dir())
        paths = (place.relative_to(address).as_posix() for place in places)
    return all(_BEFORE.fullmatch(path.partition("/")[0]) for path in paths)


def _shows_a_store(address: str) -> bool:
    """Whether a finished artifact lies where a store keeps it."""
    artifacts = f"{address}/artifacts"
    stages = {file.path.partition("/")[0] for file in stored_below(artifacts)}
    return any(
        re.fullmatch(KEY, name)
        for stage in sorted(stages)
        if re.fullmatch(STAGE, stage)
        for name in metadata_below(f"{artifacts}/{stage}")
    )
