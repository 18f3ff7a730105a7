"""A store says what it is, and where it lies; nothing else becomes one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.store import MARKER, Store

MARKERS = {
    b'{"format": 1}': "is a store of format 1, this PAPA knows format 3",
}


def put(store: Store, name: str, data: bytes = b"mine") -> None:
    with store.files.used("") as (files, root):
        files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
        files.pipe_file(f"{root}/{name}", data)


def names(store: Store) -> set[str]:
    return set(store.files.find())


def test_what_holds_other_things_becomes_no_store(store: Store) -> None:
    mine = {"scratch/chapter.txt", "locks/poetry.lock", "artifacts/probe/data"}
    for name in mine:
        put(store, name)
    with pytest.raises(ArtifactError, match=r"holds other things and no PAPA store .*give a new"):
        store.make()
    assert names(store) == mine


def test_runs_that_begin_at_once_make_one_store_that_says_what_it_is(store: Store) -> None:
    assert not store.is_marked()
    with ThreadPoolExecutor(8) as threads:
        for made in [threads.submit(store.make) for _ in range(8)]:
            made.result()
    assert store.is_marked()
    assert names(store) == {MARKER}
    put(store, "artifacts/probe/data")
    store.make()
    for data, said in MARKERS.items():
        put(store, MARKER, data)
        for ask in (store.make, store.is_marked):
            with pytest.raises(ArtifactError, match=said):
                ask()


def test_where_it_cannot_be_made_and_what_is_no_address(tmp_path: Path) -> None:
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
    prefixes = ("a/b", "a-b", "a.b", "a", "long/" * 100)
    stores = [Store(f"s3://bucket/{prefix}") for prefix in prefixes]
    assert stores[0].folder("probe", "key") == "s3://bucket/a/b/artifacts/probe/key"
    assert Store("s3://bucket/a/b/").address == stores[0].address
    roots = {store.root for store in stores}
    assert len(roots) == len(stores)
    assert all(root.parent == tmp_path / "stores" and len(root.name) < 120 for root in roots)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere")
    assert Store(stores[0].address).root not in roots, "the same bucket name at another server"
