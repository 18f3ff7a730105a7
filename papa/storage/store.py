"""The artifact store, in a folder or behind a URI; docs/store.md says what lies where in it."""

import hashlib
import json
import re
import uuid
from pathlib import Path

from papa.errors import ArtifactError, DamagedError
from papa.files import cache_folder
from papa.storage.artifacts import ArtifactReference, Metadata, digest_of, read_metadata
from papa.storage.files import Address, Files, endpoint, make_folders, refuse_links, without_links

MARKER = "papa-store.json"
FORMAT = 3


class Store:
    """An artifact store, in a folder or behind a URI that fsspec knows.

    Attributes:
        files: Its files.
        address: Its folder or URI.
        root: Its folder on this machine; of a URI one in the cache.
        artifacts: The address of its artifacts.
        scratch: Where steps keep features while they run.
        locks: Where runs on this machine keep their locks.
        studies: The results of all studies, on this machine also where artifacts lie behind a URI.
        shared_studies: What other machines read of studies where the store lies behind a URI; None
            in a folder, where they read ``studies`` itself.
    """

    def __init__(self, address: Address) -> None:
        self.files = Files(without_links(address))
        self.address = self.files.address
        # A name that a person recognises, and that neither another URI nor another server has.
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", self.address.partition("://")[2]).strip("-.")
        digest = hashlib.sha256(f"{endpoint()} {self.address}".encode()).hexdigest()[:16]
        self.root = self.files.folder or cache_folder() / "stores" / f"{readable[-80:]}-{digest}"
        self.artifacts = f"{self.address}/artifacts"
        self.scratch = self.root / "scratch"
        self.locks = self.root / "locks"
        self.studies = Files(self.root / "studies")
        self.shared_studies = None if self.files.folder else Files(f"{self.address}/studies")

    def study_path(self, name: str) -> Path:
        """Return the path of a name below ``studies``: a study's results, or a file beside them."""
        return self.root / "studies" / name

    def write_study_file(self, name: str, data: bytes) -> None:
        """Write a file of a study beside its results, for other machines too."""
        self.studies.write(name, data, replace=True)
        if self.shared_studies:
            self.shared_studies.write(name, data, replace=True)

    def remove_study_file(self, name: str) -> None:
        """Remove a file of a study, for other machines too."""
        self.studies.remove(name)
        if self.shared_studies:
            self.shared_studies.remove(name)

    def folder(self, stage: str, key: str) -> str:
        """Return the address of a step's artifact, finished or not."""
        return f"{self.artifacts}/{stage}/{key}"

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """Return the reference to a step's finished artifact."""
        return ArtifactReference(self.folder(stage, key), digest_of(self._read(stage, key)))

    def _read(self, stage: str, key: str) -> Metadata:
        address = self.folder(stage, key)
        metadata = read_metadata(address)
        if (metadata.get("stage"), metadata.get("key")) != (stage, key):
            raise DamagedError(f"{address} holds another step's artifact", address)
        return metadata

    def damage(self, stage: str, key: str) -> DamagedError | None:
        """Return what keeps the step's artifact from being used, as metadata and sizes tell."""
        address = self.folder(stage, key)
        try:
            metadata = self._read(stage, key)
        except DamagedError as error:
            return error
        files = Files(address).find(metadata["data"])
        for name, size in metadata["sizes"].items():
            actual_size, _ = files.get(name, ("no such file", 0))
            if actual_size != size:
                return DamagedError(
                    f"{address}/{name} is damaged (expected {size} bytes, found {actual_size})",
                    address,
                )
        return None

    def check(self) -> None:
        """Check that the store answers and has this format, and that no link leads out of it."""
        for pattern in ("*", "artifacts/*", "studies/*", "studies/*/*", "locks/*"):
            for path in self.root.glob(pattern):
                if path.is_symlink():
                    refuse_links(path)
        self.is_marked()  # Raises for a store of another format.

    def is_marked(self) -> bool:
        """Return whether the address says that it is a store. Raises ArtifactError for a store of
        another format.
        """
        data = self.files.read(MARKER)
        if data is None:
            return False
        try:
            store_format = json.loads(data)["format"]
        except (ValueError, TypeError, KeyError):
            store_format = f"'{data[:20].decode(errors='replace')}'"
        if store_format != FORMAT:
            raise ArtifactError(
                f"{self.address} is a store of format {store_format}, and this version of PAPA "
                f"reads format {FORMAT}: use the version that wrote it, or give another store and "
                "run its studies again"
            )
        return True

    def make(self) -> None:
        """Make the store unless other things lie there; check that artifacts can be written."""
        self.check()
        with Files(self.root).access(""):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.is_marked():
            ignored = (".", MARKER, "mlflow.db", "mlartifacts")
            unknown = [name for name in self.files.find() if not name.startswith(ignored)]
            # Another run may have made it meanwhile.
            if unknown and not self.is_marked():
                raise ArtifactError(
                    f"{self.address} holds other files and no store of PAPA ({MARKER} is "
                    "missing): give a new or empty folder, or another prefix, with --store"
                )
            self.files.write(MARKER, json.dumps({"format": FORMAT}).encode())
        probe = f".{uuid.uuid4().hex}"
        self.files.write(probe, b"")
        self.files.remove(probe)
        make_folders(self.scratch)
