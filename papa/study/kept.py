"""What was told of a study's heads, kept beside its results for its report."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from papa.storage.artifacts import (
    ArtifactReference,
    is_sound,
    published,
    read_metadata,
    reading,
    remove,
    verify,
)
from papa.storage.atomic import scratch_beside
from papa.storage.metadata import METADATA
from papa.study.locks import claimed
from papa.study.step import Step
from papa.study.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from papa.reporting.page import Section
    from papa.study.average import Averaged

FOLDER = "descriptions"
VERSION = 2
"""Of what is in the files: what another version of PAPA kept is not shown."""


def digests(
    averages: Sequence[Averaged], found: Mapping[Step, ArtifactReference]
) -> dict[str, str]:
    """Of the averages that are finished, by encoder and task: what descriptions are of."""
    return {
        f"{averaged.label} · {averaged.task.name}": found[averaged.constants].digest
        for averaged in averages
        if averaged.constants in found
    }


def keep(
    store: Store, study: str, averages: Mapping[str, str], frames: Mapping[str, pd.DataFrame]
) -> Path:
    """Write a Parquet file for each description; what was kept of others with the same averages
    stays.
    """
    folder = store.study(study) / FOLDER
    with claimed(store, f"study-{study}"):
        frames = {**kept(store, study, averages), **frames}
        remove(folder)
        with published(folder, {"averages": dict(averages), "version": VERSION}) as scratch:
            for name, frame in frames.items():
                frame.to_parquet(scratch / f"{name}.parquet", index=False)
    return folder


def kept(store: Store, study: str, averages: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """What was kept, by name of the description; nothing where it is damaged, or the study has
    other averages now.
    """
    import pandas as pd

    from papa.descriptions.table import DESCRIPTIONS

    folder = store.study(study) / FOLDER
    if not is_sound(folder):
        return {}
    metadata = read_metadata(folder)
    if (metadata.get("averages"), metadata.get("version")) != (averages, VERSION):
        return {}
    files = verify(folder)["files"]
    with reading(folder):
        return {
            name: pd.read_parquet(folder / f"{name}.parquet")
            for name in DESCRIPTIONS
            if f"{name}.parquet" in files
        }


def kept_section(store: Store, study: str, averages: Mapping[str, str]) -> Section | None:
    """What was kept, as a section of the study's report."""
    from papa.reporting.sections import descriptions_section

    frames = kept(store, study, averages)
    with reading(store.study(study) / FOLDER):
        return descriptions_section(frames) if frames else None


def replace_folder(target: Path, source: Path) -> None:
    """Replace ``target`` by a copy of the artifact ``source``, in one rename each; descriptions
    that ``target`` keeps stay.
    """
    with scratch_beside(target) as fresh:
        old = fresh.with_name(f"{fresh.name}.old")
        shutil.copytree(source, fresh, ignore=shutil.ignore_patterns(METADATA), dirs_exist_ok=True)
        shutil.copy2(source / METADATA, fresh / METADATA)
        if (target / FOLDER).is_dir():
            shutil.copytree(target / FOLDER, fresh / FOLDER, symlinks=True)
        try:
            if target.exists():
                target.rename(old)
            fresh.rename(target)
        finally:
            shutil.rmtree(old, ignore_errors=True)
