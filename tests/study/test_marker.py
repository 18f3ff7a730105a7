"""A store says what it is; nothing else becomes one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from papa.errors import ArtifactError
from papa.storage.files import filesystem
from papa.storage.store import MARKER, Store

KEY = "0123456789abcdef" * 4


def put(store: Store, name: str, data: bytes = b"mine") -> None:
    files, root = filesystem(store.address)
    files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
    files.pipe_file(f"{root}/{name}", data)


def names(store: Store) -> set[str]:
    return {file.path for file in store.files.find()}


def test_a_new_store_says_what_it_is(store: Store) -> None:
    assert not store.is_marked()
    store.make()
    assert store.is_marked()
    assert names(store) == {MARKER}
    put(store, f"artifacts/probe/{KEY}/data")
    store.make()
    assert store.is_marked()


def test_what_holds_other_things_becomes_no_store(store: Store) -> None:
    mine = ["scratch/chapter.txt", "locks/poetry.lock", f"artifacts/probe/{KEY}/data"]
    for name in mine:
        put(store, name)
    with pytest.raises(ArtifactError, match=r"holds other things and no PAPA store .*give a new"):
        store.make()
    assert names(store) == set(mine)


def test_runs_that_begin_at_once_make_one_store(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        for made in [threads.submit(store.make) for _ in range(8)]:
            made.result()
    assert names(store) == {MARKER}


MARKERS = {
    b'{"format": 1}': "is a store of format 1, this PAPA knows format 2",
    b"{": "damaged",
}


@pytest.mark.parametrize("data", MARKERS)
def test_a_marker_of_something_else_is_refused(store: Store, data: bytes) -> None:
    put(store, MARKER, data)
    for ask in (store.make, store.is_marked):
        with pytest.raises(ArtifactError, match=MARKERS[data]):
            ask()
