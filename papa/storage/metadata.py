"""An artifact's metadata, checked before anything in it is believed.

Whoever may write to a shared store writes what every machine reads, and the names in it become paths there.
"""

from __future__ import annotations

import json
import re
from pathlib import PureWindowsPath
from typing import Any

from papa.errors import ArtifactError
from papa.storage.digests import sha256_of_json

METADATA = "metadata.json"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def parse_metadata(data: bytes, address: object) -> dict[str, Any]:
    """The document that an artifact's metadata is.

    Args:
        data: its bytes.
        address: the artifact's, for messages.

    Returns:
        A mapping with ``files``, plain relative paths inside the artifact → SHA-256, and ``digest``, theirs.

    Raises:
        ArtifactError: it is anything else.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        fault: str | None = "not JSON"
    else:
        fault = _fault(document)
    if fault:
        raise ArtifactError(f"{address}/{METADATA} is damaged ({fault}): delete {address} and run again")
    return document


def _fault(document: Any) -> str | None:
    """What is wrong with the document; None where nothing is."""
    if not isinstance(document, dict):
        return "not a mapping"
    files = document.get("files")
    if not isinstance(files, dict):
        return "'files' is not a mapping"
    for name, digest in files.items():
        if not _is_plain(name):
            return f"{name!r} is no plain relative path inside the artifact"
        if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            return f"{digest!r} is no SHA-256 of {name!r}"
    if document.get("digest") != sha256_of_json(files):
        return "'digest' is not that of 'files'"
    return None


def _is_plain(name: str) -> bool:
    """Whether a name leads, on every system, to a place inside the folder that it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
        and name != METADATA
    )
