"""Addresses of artifacts, and the choice of what answers one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from papa.credentials import WHERE_INSTEAD, holds_credentials
from papa.errors import ArtifactError
from papa.storage.interface import ArtifactStore
from papa.storage.local import LocalStore

Address = str | Path


def store_at(address: Address) -> ArtifactStore:
    """What lies at an address: a folder of this machine, or a URI such as ``s3://bucket/prefix``."""
    text = str(address).removeprefix("file://")
    if holds_credentials(text):
        raise ArtifactError(
            f"the store's address holds a user, password, key or token: {WHERE_INSTEAD}"
        )
    if "://" in text:
        # Not at the top: fsspec takes a while to import.
        from papa.storage.remote import RemoteStore

        return RemoteStore(text.rstrip("/"))
    if re.match(r"[a-z][a-z0-9+.-]+:", text):
        raise ArtifactError(
            f"'{text}' is no address of a store: give a folder, or a URI such as s3://bucket/prefix"
        )
    return LocalStore(os.path.abspath(Path(text).expanduser()))
