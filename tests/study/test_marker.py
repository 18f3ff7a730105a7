"""A store says what it is; nothing else becomes one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import published
from papa.storage.files import filesystem
from papa.storage.store import MARKER, Store

KEY = "0123456789abcdef" * 4


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(
        tmp_path / "store" if request.param == "folder" else request.getfixturevalue("s3_place")
    )


def put(store: Store, name: str, data: bytes = b"mine") -> None:
    files, root = filesystem(store.address)
    files.makedirs(f"{root}/{name}".rpartition("/")[0], exist_ok=True)
    files.pipe_file(f"{root}/{name}", data)


def names(store: Store) -> set[str]:
    return {file.path for file in store.files.find()}


def finish_a_step(store: Store, key: str = KEY) -> None:
    with published(store.folder("probe", key), {"stage": "probe"}) as scratch:
        (scratch / "scores.json").write_text("{}")


def test_a_new_store_says_what_it_is(store: Store) -> None:
    assert not store.is_marked()
    store.make()
    assert store.is_marked()
    assert names(store) == {MARKER}
    finish_a_step(store)
    store.make()
    assert store.is_marked()


def test_what_holds_other_things_becomes_no_store(store: Store) -> None:
    mine = [
        "scratch/thesis/chapter.txt",
        "artifacts/photos/a.jpg",
        "locks/poetry.lock",
        f"artifacts/probe/{KEY}/data",
    ]
    for name in mine:
        put(store, name)
    with pytest.raises(
        ArtifactError, match=r"holds other things and no PAPA store .*give a new or empty folder"
    ):
        store.make()
    assert names(store) == set(mine)


def test_runs_that_begin_at_once_make_one_store(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        for made in [threads.submit(store.make) for _ in range(8)]:
            made.result()
    assert names(store) == {MARKER}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            b'{"format": 1}',
            "is a store of format 1, this PAPA knows format 2: use the version that made it, or",
        ),
        (b"{", rf"{MARKER} is damaged: if this is a PAPA store, write"),
        (b"[]", "is damaged"),
    ],
)
def test_a_marker_of_something_else_is_refused(store: Store, data: bytes, told: str) -> None:
    put(store, MARKER, data)
    for ask in (store.make, store.is_marked):
        with pytest.raises(ArtifactError, match=told):
            ask()


def test_mlflow_may_have_been_there_before(tmp_path: Path) -> None:
    """``mlflow`` makes its database where there is none."""
    (tmp_path / "mlflow.db").touch()
    Store(tmp_path).make()
    assert Store(tmp_path).is_marked()


def test_a_folder_with_nothing_but_empty_folders_is_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    Store(tmp_path).make()
