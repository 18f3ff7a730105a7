"""Where a store lies, and what it says where it cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.store import Store


def test_a_store_makes_itself_and_says_where_it_cannot(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "store")
    assert not store.root.exists()
    store.make()
    assert store.scratch.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="--store"):
        Store(tmp_path / "file" / "store").make()
    for address in ("s3:/bucket/x", "s3:bucket", "gs:/bucket"):
        with pytest.raises(ArtifactError, match="is no address of a store: give a folder, or a"):
            Store(address)


def test_behind_a_uri_each_machine_has_a_root_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path))
    stores = [
        Store(f"s3://bucket/{prefix}") for prefix in ("a/b", "a-b", "a.b", "a", "long/" * 100)
    ]
    assert stores[0].folder("probe", "key") == "s3://bucket/a/b/artifacts/probe/key"
    assert Store("s3://bucket/a/b/").address == stores[0].address
    roots = [store.root for store in stores]
    assert len({*roots}) == len(roots)
    assert all(root.parent == tmp_path / "stores" and len(root.name) < 120 for root in roots)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert Store(stores[0].address).root not in roots, "the same bucket name at another server"
