"""Metadata that somebody else wrote: whatever it says, nothing is read or written outside the
artifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import fetched, metadata_below, read_metadata, verify
from papa.storage.metadata import sha256_of_json, signed
from tests.storage.files import in_cache, put
from tests.storage.laws import StoreLaws, content, data, open_it

NAMES = [
    "../escaped.txt", "inner/../../escaped.txt", "../outside/secret.txt", "{outside}/escaped.txt",
    "//escaped.txt", "./file.txt", "inner/", "", "..\\escaped.txt", "C:escaped.txt", "file\0.txt",
    "file\x1b[2J.txt", "metadata.json",
]  # fmt: skip
SECRET = "what lies outside"
CONTENTS = [b"evil", SECRET.encode()]
"""The second is known to lie outside."""


def document(name: str, content: bytes) -> bytes:
    """Metadata that fit the data in every respect but the file's name."""
    files = {name: sha256(content).hexdigest()}
    return json.dumps(
        signed({"stage": "test", "files": files, "digest": sha256_of_json(files)})
    ).encode()


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"files": ["file.txt"]}, "'list' object is not a mapping"),
    ({"digest": "../../../escaped"}, "'digest' is not that of 'files'"),
    ({"digest": "0" * 64}, "'digest' is not that of 'files'"),
    ({"stage": "tesu"}, "'metadata_digest' is not that of what it says"),
    ({"more": 1}, "'metadata_digest' is not that of what it says"),
]


class HostileLaws(StoreLaws):
    """Of every kind of store."""

    readers: tuple[Callable[[str], object], ...] = (verify, read_metadata, open_it, fetched)

    def plant(self, address: str, name: str, content: bytes) -> None:
        """What a hostile writer would: metadata that name data outside."""
        put(address, "metadata.json", document(name, content))

    @pytest.mark.parametrize("name", NAMES)
    def test_a_hostile_name_leads_nowhere(
        self, place: str, tmp_path: Path, outside: Path, name: str
    ) -> None:
        for evil in CONTENTS:
            self.plant(f"{place}/a", name.format(outside=outside), evil)
            for read in self.readers:
                with pytest.raises(
                    ArtifactError, match=r"is no plain relative path inside the artifact.*delete"
                ) as raised:
                    read(f"{place}/a")
                assert len(str(raised.value).splitlines()) == 1
        assert metadata_below(place) == {}
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": SECRET}
        assert not list(tmp_path.rglob("*escaped*"))
        assert not in_cache()

    def test_the_same_with_a_plain_name_is_read(self, place: str) -> None:
        """The control: only the name was wrong."""
        self.plant(f"{place}/a", "inner/file.txt", b"evil")
        put(f"{place}/a", data(f"{place}/a", "inner/file.txt"), b"evil")
        for read in self.readers:
            read(f"{place}/a")
        assert content(f"{place}/a") == "evil"

    @pytest.mark.parametrize(
        ("told", "fault"),
        [(b"[]", "list indices"), (b"{}", "'files'"), (b"{", "Expecting")]
        + [
            (json.dumps({**json.loads(document("file.txt", b"data")), **change}).encode(), fault)
            for change, fault in CHANGES
        ],
    )
    def test_what_is_no_metadata_is_one_sentence(self, place: str, told: bytes, fault: str) -> None:
        put(f"{place}/a", "metadata.json", told)
        for read in self.readers:
            with pytest.raises(ArtifactError, match=rf"{place}/a/metadata.json is damaged \("):
                read(f"{place}/a")
            with pytest.raises(ArtifactError, match=fault):
                read(f"{place}/a")
        assert not in_cache()
