"""The folder on this machine for what lies elsewhere, ``$PAPA_CACHE`` or ``~/.cache/papa``.

::

    <cache>/artifacts/<parent>/<name>/<digest>/   a fetched copy of an artifact
    <cache>/encoders/<digest>/                    an encoder published as pickles, with safetensors
    <cache>/remembered/<key>.json                 what was found out of files before
    <cache>/stores/<store>/                       what a store behind a URI keeps on this machine
    <cache>/scratch/                              uploads and downloads under way

Any of it may be deleted while nothing runs.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path

from papa.storage.atomic import scratch_beside


def cache_folder() -> Path:
    """Where this machine keeps what it fetched."""
    return Path(os.path.abspath(Path(os.environ.get("PAPA_CACHE") or "~/.cache/papa").expanduser()))


def local_name(uri: str) -> str:
    """A name for a URI that a person recognises and that no other URI, nor the same one at another
    S3-compatible server, has.
    """
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", uri.partition("://")[2]).strip("-.")[-80:]
    return f"{readable}-{hashlib.sha256(f'{endpoint()} {uri}'.encode()).hexdigest()[:16]}"


def endpoint() -> str:
    """The S3-compatible server that the environment names; empty where it names none."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def copies_of(address: str) -> Path:
    """The folder that holds this machine's copies of the artifact at a URI, each by its digest."""
    parent, _, name = address.rpartition("/")
    return cache_folder() / "artifacts" / local_name(parent) / name


def scratch_folder() -> AbstractContextManager[Path]:
    """An empty folder on the cache's disk; it goes with the block unless it was renamed."""
    return scratch_beside(cache_folder() / "scratch" / "of")
