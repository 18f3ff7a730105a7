"""The artifact store, in a folder or behind a URI; docs/store.md says what lies where in it."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

from papa.errors import ArtifactError, DamagedError
from papa.files import cache_folder
from papa.storage.artifacts import ArtifactReference, digest_of, read_metadata
from papa.storage.files import Address, Files, endpoint, held_folder, link_error, without_links

MARKER = "papa-store.json"
FORMAT = 3
_PLACES = ("artifacts", "studies", "scratch", "locks", "mlflow.db", "mlartifacts")


class Store:
    """The places in a store: a folder or a URI that fsspec knows; ``root`` is on this machine."""

    def __init__(self, address: Address) -> None:
        self.files = Files(without_links(address))
        self.address = self.files.address
        # A name that a person recognises, and that neither another URI nor another server has.
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", self.address.partition("://")[2]).strip("-.")
        digest = hashlib.sha256(f"{endpoint()} {self.address}".encode()).hexdigest()[:16]
        self.root = self.files.folder or cache_folder() / "stores" / f"{readable[-80:]}-{digest}"
        self.artifacts = f"{self.address}/artifacts"
        self.scratch, self.locks = self.root / "scratch", self.root / "locks"

    def study(self, name: str) -> Path:
        """Where the results of a study lie."""
        return self.root / "studies" / name

    @property
    def studies(self) -> Files:
        """The results of all studies, on this machine also where artifacts lie behind a URI."""
        return Files(self.root / "studies")

    @property
    def shared_studies(self) -> Files | None:
        """What other machines see of studies where the store lies behind a URI; None in a folder,
        where they see ``studies`` itself.
        """
        return None if self.files.folder else Files(f"{self.address}/studies")

    def write_study_file(self, name: str, data: bytes) -> None:
        """Write a file of a study beside its results, for other machines too."""
        self.studies.replace(name, data)
        if self.shared_studies:
            self.shared_studies.replace(name, data)

    def remove_study_file(self, name: str) -> None:
        """Remove a file of a study, for other machines too."""
        self.studies.remove(name)
        if self.shared_studies:
            self.shared_studies.remove(name)

    def folder(self, stage: str, key: str) -> str:
        """The address of a step's artifact, finished or not."""
        return f"{self.artifacts}/{stage}/{key}"

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact."""
        return ArtifactReference(self.folder(stage, key), digest_of(self._read(stage, key)))

    def _read(self, stage: str, key: str) -> dict[str, Any]:
        found = read_metadata(address := self.folder(stage, key))
        if (found.get("stage"), found.get("key")) != (stage, key):
            raise DamagedError(f"{address} holds another step's artifact", address)
        return found

    def damage(self, stage: str, key: str) -> DamagedError | None:
        """What keeps the step's artifact from being used, as metadata and sizes tell."""
        address = self.folder(stage, key)
        try:
            metadata = self._read(stage, key)
        except DamagedError as error:
            return error
        files = Files(address).find(metadata["data"])
        for name, size in metadata["sizes"].items():
            if (found := files.get(name, ("no such file", 0))[0]) != size:
                told = f"expected {size} bytes, found {found}"
                return DamagedError(f"{address}/{name} is damaged ({told})", address)
        return None

    def check(self) -> None:
        """Check that the store answers, and that no link leads out of it."""
        below = ("artifacts/*", "studies/*", "studies/*/*", "locks/*", "mlartifacts/**/*")
        for name in (*_PLACES, *below):
            for path in self.root.glob(name) if "*" in name else [self.root / name]:
                if path.is_symlink():
                    raise link_error(path)
        self.is_marked()

    def is_marked(self) -> bool:
        """Whether the address says that it is a store."""
        if (data := self.files.read(MARKER)) is None:
            return False
        try:
            found = json.loads(data)["format"]
        except (ValueError, TypeError, KeyError):
            found = f"'{data[:20].decode(errors='replace')}'"
        if found != FORMAT:
            raise ArtifactError(
                f"{self.address} is a store of format {found}, and this version of PAPA reads "
                f"format {FORMAT}: use the version that wrote it, or give another store and "
                "run its studies again"
            )
        return True

    def make(self) -> None:
        """Make the store unless other things lie there; check that artifacts can be written."""
        self.check()
        with Files(self.root).used(""):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.is_marked():
            ignored = (".", MARKER, "mlflow.db", "mlartifacts")
            others = [name for name in self.files.find() if not name.startswith(ignored)]
            # Another run may have made it meanwhile.
            if others and not self.is_marked():
                raise ArtifactError(
                    f"{self.address} holds other files and no store of PAPA ({MARKER} is "
                    "missing): give a new or empty folder, or another prefix, with --store"
                )
            self.files.write(MARKER, json.dumps({"format": FORMAT}).encode())
        self.files.write(name := f".{uuid.uuid4().hex}", b"")
        self.files.remove(name)
        with held_folder(self.scratch, make=True):
            pass
