"""Names in the cache."""

from __future__ import annotations

import os

import pytest

from papa.storage.cache import local_name


def test_names_on_disk_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    uris = [
        "s3://b/x/y",
        "s3://b/x-y",
        "s3://b/x.y",
        "s3a://b/x/y",
        f"s3://b/{'long/' * 100}",
        "s3://b/ü",
    ]
    names = [local_name(uri) for uri in uris]
    assert len(set(names)) == len(uris)
    assert all(len(os.fsencode(name)) < 120 and "/" not in name for name in names)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert local_name(uris[0]) not in names, (
        "the same bucket name at another server is another place"
    )
