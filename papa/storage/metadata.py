"""What an artifact says of itself: the digests of its files and of what it says, checked before
anything is believed.

Whoever may write to a shared store writes what every machine reads, and the names in it become
paths there.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from papa.errors import ArtifactError, DamagedError, shown

METADATA = "metadata.json"
DIGEST = r"[0-9a-f]{64}"
_OWN = "metadata_digest"
_NUMBER = (0.0, math.inf)
_MOMENT = (0.0, 253_402_214_400.0)
"""Seconds since 1970, before the year 9999 ends."""
_FORMS: dict[str, Any] = {
    **dict.fromkeys(("stage", "key", "name", "corpus_fingerprint", "digest_of_source"), str),
    **dict.fromkeys(("flops", "seconds", "worker_seconds"), _NUMBER),
    "finished": _MOMENT,
    **dict.fromkeys(("stage_version", "epochs"), int),
    **{
        name: {str: int}
        for name in ("rows", "tokens", "texts_cut", "words_cut", "evaluations", "sizes")
    },
    "device": str | None,
    "order_of_rows": int | None,
    "inputs": [str],
    "upstream": {str: str},
    "shards": {str: [{"file": str, "rows": int}]},
    "notes": dict,
    "spec": dict,
}
"""What readers ask metadata for, and the form that it has: a type, bounds of a number, a list or
mapping of one form, or a mapping with these keys.
"""


class Metadata(dict[str, Any]):
    """What an artifact says of itself; to ask for what it does not say finds it damaged."""

    def __init__(self, document: Mapping[str, Any], address: object) -> None:
        super().__init__(document)
        self._address = address

    def __missing__(self, name: str) -> Any:
        raise damaged(f"{METADATA} is damaged (it names no {name!r})", self._address)


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(value: object) -> str:
    """Hex SHA-256 of a JSON value in canonical form (sorted keys, no spaces)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def describe(folder: Path, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata with the sizes and digests of every file in ``folder``, and of all that they
    say.
    """
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / METADATA
    }
    files = {name: sha256_of_file(path) for name, path in paths.items()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    return signed({**metadata, "files": files, "sizes": sizes, "digest": sha256_of_json(files)})


def signed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a digest over all that it says."""
    # As JSON reads it back: keys are strings there.
    content = json.loads(
        json.dumps({name: value for name, value in document.items() if name != _OWN})
    )
    return {**content, _OWN: sha256_of_json(content)}


def is_signed(document: Mapping[str, Any]) -> bool:
    """Whether the document says what it said when it was signed."""
    return document.get(_OWN) == signed(document)[_OWN]


def metadata_bytes(document: Mapping[str, Any]) -> bytes:
    """The metadata as they are stored."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def parse_metadata(data: bytes | None, address: object) -> Metadata:
    """The document that an artifact's metadata is: a mapping with ``files``, plain relative paths
    inside the artifact → SHA-256, and ``digest``, theirs.
    """
    if data is None:
        raise DamagedError(
            f"{address} holds no complete artifact ({METADATA} is missing)", str(address)
        )
    try:
        document = json.loads(data)
        fault = _fault(document)
        if fault is None and _OWN not in document:
            fault = f"no '{_OWN}': it is of an older PAPA"
        elif fault is None and not is_signed(document):
            fault = f"'{_OWN}' is not that of what it says"
    except (ValueError, RecursionError):
        fault = "not JSON"
    if fault:
        raise damaged(f"{METADATA} is damaged ({fault})", address)
    return Metadata(document, address)


def damaged(what: str, address: object) -> DamagedError:
    """What is wrong with a file of the artifact at an address."""
    return DamagedError(f"{address}/{what}", str(address))


def check_files(
    folder: Path, metadata: Mapping[str, Any], address: object, needed: Iterable[str] = ()
) -> None:
    """Check the files in ``folder`` against the metadata, which must name the ``needed`` ones."""
    for name in needed:
        if name not in metadata["files"]:
            raise damaged(f"{METADATA} names no {name}", address)
    root = folder.resolve()
    for name, expected in metadata["files"].items():
        path = folder / name
        if not path.is_file():
            raise damaged(f"{name} is missing from its artifact", address)
        if path.resolve() != root / name:
            raise damaged(f"{name} is a link, and none leads out of an artifact", address)
        try:
            found = sha256_of_file(path)
        except OSError as error:
            raise ArtifactError(
                f"{address}/{name} cannot be read ({error.strerror}): check its rights"
            ) from None
        if found != expected:
            raise damaged(
                f"{name} is damaged (expected SHA-256 {expected[:12]}, found {found[:12]})", address
            )


def _fault(document: object) -> str | None:
    """What is wrong with the document; None where nothing is."""
    if not isinstance(document, dict):
        return "not a mapping"
    files = document.get("files")
    if not isinstance(files, dict):
        return "'files' is not a mapping"
    for name, digest in files.items():
        if name == METADATA or not is_plain(name):
            return f"{shown(name)} is no plain relative path inside the artifact"
        if not (isinstance(digest, str) and re.fullmatch(DIGEST, digest)):
            return f"{shown(digest)} is no SHA-256 of {shown(name)}"
    if document.get("digest") != sha256_of_json(files):
        return "'digest' is not that of 'files'"
    return next(
        (
            f"{name!r} is {shown(document[name])}"
            for name, form in _FORMS.items()
            if name in document and not _has_form(document[name], form)
        ),
        None,
    )


def _has_form(value: object, form: Any) -> bool:
    if isinstance(form, tuple):
        return type(value) in (int, float) and form[0] <= value < form[1]
    if isinstance(form, list):
        return isinstance(value, list) and all(_has_form(one, form[0]) for one in value)
    if isinstance(form, dict) and str in form:
        return isinstance(value, dict) and all(_has_form(one, form[str]) for one in value.values())
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            name in value and _has_form(value[name], part) for name, part in form.items()
        )
    return isinstance(value, form) and not isinstance(value, bool)


def is_plain(name: str) -> bool:
    """Whether a name leads, on every system, to a place inside the folder that it is joined to."""
    return (
        name.isprintable()
        and "\\" not in name
        and not PureWindowsPath(name).drive
        and not {"", ".", ".."} & {*name.split("/")}
    )
