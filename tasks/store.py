"""The artifact store: one folder that holds everything a study makes.

::

    <store>/artifacts/<stage>/<key>/   one artifact a finished step
    <store>/studies/<name>/            a study's results, for people
    <store>/prefect/                   Prefect's database and results
    <store>/mlflow.db, mlartifacts/    MLflow's runs
    <store>/scratch/                   what is only needed while a step runs
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papa.artifacts import ArtifactReference, is_complete, reference, sha256_of_json
from papa.errors import ArtifactError


def cache_key(stage: str, version: int, spec: Mapping[str, Any], upstream: Mapping[str, str | None]) -> str:
    """What identifies a step's result: stage, the stage's version, its part of the spec, what it builds on.

    Args:
        spec: the part of the specification that the stage reads; nothing that only changes speed.
        upstream: digests of what it builds on, by name.
    """
    return sha256_of_json({"stage": stage, "version": version, "spec": dict(spec), "upstream": dict(upstream)})


class Store:
    """The places in a store folder.

    Args:
        root: the store folder; made when something is written to it.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root.expanduser()))

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

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

    def study(self, name: str) -> Path:
        """Where the results of a study lie."""
        return self.root / "studies" / name

    def folder(self, stage: str, key: str) -> Path:
        """Where the artifact of a step lies, finished or not."""
        return self.artifacts / stage / key

    def holds(self, stage: str, key: str) -> bool:
        """Whether the step's artifact is complete."""
        return is_complete(self.folder(stage, key))

    def reference(self, stage: str, key: str) -> ArtifactReference:
        """The reference to a step's finished artifact.

        Raises:
            ArtifactError: it is not complete.
        """
        return reference(self.folder(stage, key))

    def make(self) -> None:
        """Make the store folder.

        Raises:
            ArtifactError: it cannot be made or written to.
        """
        try:
            self.scratch.mkdir(parents=True, exist_ok=True)
            probe = self.scratch / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ArtifactError(
                f"the store {self.root} cannot be written ({error.strerror}): give another folder with --store"
            ) from None
