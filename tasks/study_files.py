"""The files of studies in a store, for people and for other machines: specifications, why runs
failed, and results.
"""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from papa.errors import DamagedError, PapaError, TransientError
from papa.files import is_plain, name_aside
from papa.spec import StudySpec
from papa.storage import artifacts
from papa.storage.artifacts import ArtifactReference
from papa.storage.locks import claimed
from papa.storage.store import Store
from papa.tasks.manifest import specification

_POINTER = ".json"
"""The ending of a file behind a URI that names the artifact with the results of a study."""


def place_results(store: Store, study: str, artifact: ArtifactReference) -> None:
    """Put the results of a study, as its artifact holds them, where people look for them; behind a
    URI, also write a file that names the artifact, for other machines.
    """
    _copy_results(store, study, artifact)
    if store.shared_studies:
        name = "/".join(artifact.path.split("/")[-2:])
        document = {"artifact": name, "digest": artifact.digest}
        content = json.dumps(document).encode()
        store.shared_studies.write(f"{study}{_POINTER}", content, replace=True)


def fetch_studies(store: Store) -> None:
    """Copy to this machine what other machines wrote of the studies of a store behind a URI:
    specifications, why runs failed, and results. In a folder there is nothing to copy.
    """
    shared = store.shared_studies
    if shared is None:
        return
    there = shared.find()
    for name, (_, modified) in there.items():
        # Whoever may write to the store chose these names.
        if "/" in name or name.startswith(".") or not is_plain(name):
            continue
        path = store.study_path(name)
        if name.endswith((".yaml", ".failed")):
            if path.is_file() and path.stat().st_mtime == modified:
                continue
            data = shared.read(name)
            if data is not None:
                store.studies.write(name, data, replace=True)
                os.utime(path, (modified, modified))
        elif name.endswith(_POINTER):
            # Results that are gone or damaged are those of a study that runs again.
            with suppress(PapaError, ValueError, KeyError, TypeError, AttributeError):
                document = json.loads(shared.read(name) or b"{}")
                stage, _, key = document["artifact"].partition("/")
                artifact = store.reference(stage, key)
                if artifact.digest == document["digest"]:
                    artifacts.verified(artifact)
                    _copy_results(store, name.removesuffix(_POINTER), artifact)
    for path in store.study_path("").glob("*.failed"):
        if path.name not in there and f"{path.stem}.yaml" in there:
            store.studies.remove(path.name)


def _copy_results(store: Store, study: str, artifact: ArtifactReference) -> None:
    """Put the results of a study, as its artifact holds them, beside those of others here."""
    folder = store.study_path(study)
    with claimed(store, f"study-{study}"):
        with suppress(DamagedError):
            if artifacts.digest_of(artifacts.read_metadata(folder)) == artifact.digest:
                artifacts.verified(folder)
                return
        try:
            data = artifacts.verified(artifact)
            metadata = artifacts.read_metadata(artifact)
        except DamagedError as error:
            artifacts.remove(artifact.path)
            raise TransientError(f"{error.problem}: it was deleted; run again") from None
        aside = name_aside(study)
        try:
            with store.studies.filled(aside) as fresh:
                for name, digest in metadata["files"].items():
                    (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(data / name, fresh / name)
                    artifacts.check_file(fresh / name, digest, name, artifact.path)
                (fresh / artifacts.METADATA).write_text(f"{json.dumps(metadata, indent=2)}\n")
            artifacts.remove(folder)
            store.studies.rename(aside, study)
        finally:
            store.studies.remove(aside)


def save_study(store: Store, study: StudySpec) -> Path:
    """Write a study's specification beside its results, so that it can be run again."""
    path = store.study_path(f"{study.name}.yaml")
    store.write_study_file(path.name, specification(study).encode())
    return path
