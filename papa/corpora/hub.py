"""Datasets of the Hugging Face hub, or of a local folder laid out like one; dataset scripts never run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from papa.artifacts import sha256_of_file, sha256_of_json
from papa.corpora.files import names_of_classes
from papa.corpora.table import SourceTable
from papa.errors import DataError
from papa.spec import HubSource

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE = 10.0
"""Seconds to wait for the hub's answer about a revision."""


def read_hub(source: HubSource, split: str) -> SourceTable:
    """One split of a dataset.

    Raises:
        DataError: the hub cannot be reached and there is no local copy, or the dataset, configuration,
            revision or split does not exist.
    """
    from datasets import load_dataset

    local = Path(source.name).is_dir()
    label = _label(source)
    try:
        # Loading the commit that the fingerprint names keeps a moving branch from slipping in between.
        revision = None if local else commit_of(source) or source.revision
        dataset = load_dataset(source.name, source.config, split=split, revision=revision)
    except Exception as error:  # The library raises whatever its many backends raise.
        reason = " ".join(str(error).split())[:300]
        advice = (
            "check the network, or give local files (source.kind: files)"
            if isinstance(error, ConnectionError | TimeoutError)
            else "check source.name, config, revision and split names, and the network, or give local files "
            "(source.kind: files)"
        )
        raise DataError(
            f"dataset '{label}', split '{split}', cannot be loaded ({type(error).__name__}: {reason}): {advice}"
        ) from None
    return SourceTable(
        rows=dataset.with_format("arrow")[:],
        origin=f"dataset '{label}', split '{split}'",
        class_names=names_of_classes(dataset.features),
    )


@cache
def commit_of(source: HubSource) -> str | None:
    """The commit that the source's revision stands for, asked once a process.

    For a local folder, a digest of its content. Where the hub does not answer, the revision as it is written
    (None for the default branch).
    """
    folder = Path(source.name)
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return sha256_of_json({str(path.relative_to(folder)): sha256_of_file(path) for path in files})
    if source.revision and _COMMIT.fullmatch(source.revision):
        return source.revision
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(source.name, revision=source.revision, timeout=_PATIENCE).sha
    except Exception:  # Offline, or no such dataset: loading says which.
        return source.revision


def _label(source: HubSource) -> str:
    parts = [source.name, *([source.config] if source.config else [])]
    return "/".join(parts) + (f"@{source.revision}" if source.revision else "")
