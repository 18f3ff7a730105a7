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

    from papa.descriptions.told import Told
    from papa.study.aggregate import Averaged

FOLDER = "descriptions"


def digests(
    averages: Sequence[Averaged], found: Mapping[Step, ArtifactReference]
) -> dict[str, str]:
    """Of the averages that are finished, by encoder and task: what descriptions are of."""
    return {
        f"{one.label} · {one.task.name}": found[one.constants].digest
        for one in averages
        if one.constants in found
    }


def keep(
    store: Store, study: str, averages: Mapping[str, str], frames: Mapping[str, pd.DataFrame]
) -> Path:
    """Write a Parquet file for each description, in place of those of before.

    Args:
        store: which has the study.
        study: its name.
        averages: ``digests`` of its averages.
        frames: by name of the description.

    Returns:
        The folder with the files.
    """
    folder = store.study(study) / FOLDER
    with claimed(store, f"study-{study}"):
        remove(folder)
        with published(folder, {"averages": dict(averages)}) as scratch:
            for name, frame in frames.items():
                frame.to_parquet(scratch / f"{name}.parquet", index=False)
    return folder


def kept(store: Store, study: str, averages: Mapping[str, str]) -> list[Told]:
    """The tables of what was kept; none where nothing was, it is damaged, or the study has other
    averages now.

    Raises:
        ArtifactError: the files are no descriptions.
    """
    import pandas as pd

    from papa.descriptions.table import DESCRIPTIONS
    from papa.descriptions.told import told

    folder = store.study(study) / FOLDER
    if not is_sound(folder) or read_metadata(folder).get("averages") != averages:
        return []
    names = [f"{name}.parquet" for name in DESCRIPTIONS]
    files = [name for name in names if name in verify(folder)["files"]]
    with reading(folder):
        return list(told({Path(name).stem: pd.read_parquet(folder / name) for name in files}))


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
