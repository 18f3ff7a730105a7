"""What results reach stays; what nothing refers to, and what killed runs left, is found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from papa.artifacts import complete_below, published, read_metadata, remove
from papa.filesystem import filesystem
from tasks.running import announced, running
from tasks.store import Store
from tasks.unused import delete, unused


def make(store: Store, stage: str, key: str, upstream: Iterable[str] = (), origins: Iterable[str] = ()) -> str:
    """Publish an artifact that was built from others; its digest."""
    address = store.folder(stage, key)
    metadata = {
        "stage": stage,
        "name": f"{stage} · {key}",
        "upstream": {str(number): digest for number, digest in enumerate(upstream)},
        "origins": list(origins),
    }
    with published(address, metadata) as scratch:
        (scratch / "data").write_text(f"{stage} {key}")
    return str(read_metadata(address)["digest"])


def fill(store: Store) -> None:
    """A finished study, an unfinished one, and what a killed run left."""
    corpus = make(store, "tokenise", "used", ["the source's fingerprint"])
    average = make(store, "average", "used", [corpus])
    ranking = make(store, "rank", "used", [corpus, average])
    scores = make(store, "probe", "used", [corpus, average], origins=[ranking])
    results = make(store, "aggregate", "used", [scores, corpus])
    make(store, "track", "used", [results])
    lost = make(store, "tokenise", "unused", ["another fingerprint"])
    make(store, "probe", "unused", [lost, average])
    for shard in ("shard-0", "first-7"):
        make(store, "average-shards", f"killed/{shard}")


USED = {"tokenise/used", "average/used", "rank/used", "probe/used", "aggregate/used", "track/used"}


def complete(store: Store) -> set[str]:
    stages = ("tokenise", "average", "rank", "probe", "aggregate", "track", "average-shards/killed")
    return {f"{stage}/{key}" for stage in stages for key in complete_below(f"{store.artifacts}/{stage}")}


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path / "store" if request.param == "folder" else request.getfixturevalue("s3_place"))


def test_what_nothing_refers_to_is_found_and_deleted(store: Store) -> None:
    begun = time.time()
    fill(store)
    found = {one.address.removeprefix(f"{store.artifacts}/"): one for one in unused(store)}
    assert set(found) == {"tokenise/unused", "probe/unused", "average-shards/killed"}
    assert found["probe/unused"].name == "probe · unused"
    assert found["probe/unused"].reason == "nothing refers to it"
    assert found["average-shards/killed"].reason == "an average that was not finished"
    assert all(one.size > 100 for one in found.values())
    # A store may keep whole seconds.
    assert all(begun - 1 <= one.modified <= time.time() + 1 for one in found.values())
    for one in found.values():
        delete(one)
    assert complete(store) == USED
    assert unused(store) == []


def test_without_results_nothing_is_used(store: Store) -> None:
    """The control: the same artifacts are unused once the results that reach them are gone."""
    fill(store)
    for one in unused(store):
        delete(one)
    for stage in ("aggregate", "track"):
        remove(store.folder(stage, "used"))
    assert len(unused(store)) == len(USED) - 2


@pytest.mark.server
def test_an_upload_that_was_killed_is_found(s3_place: str) -> None:
    store = Store(s3_place)
    fill(store)
    files, root = filesystem(store.artifacts)
    files.pipe_file(f"{root}/probe/used/0123/data", b"of a second writer")
    files.pipe_file(f"{root}/probe/half/4567/data", b"without metadata")
    found = {one.address.removeprefix(f"{store.artifacts}/"): one.reason for one in unused(store)}
    left = "left by a run that was killed"
    assert found.items() >= {"probe/used/0123": left, "probe/half": left}.items()
    for one in unused(store):
        delete(one)
    assert complete(store) == USED
    assert read_metadata(store.folder("probe", "used"))


def test_scratch_of_killed_runs_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    fill(store)
    places = [
        Path(store.artifacts) / "probe" / ".abc.123.0123abcd" / "data",
        store.root / "studies" / ".demo.123.0123abcd.old" / "report.md",
        store.scratch / "features-0123" / "features",
    ]
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_text("left")
    (store.root / "studies" / "demo").mkdir()
    before = len(USED)
    for one in unused(store):
        delete(one)
    assert not any(place.parent.exists() for place in places)
    assert (store.root / "studies" / "demo").is_dir()
    assert len(complete(store)) == before


def test_who_runs_says_so(store: Store) -> None:
    assert running(store) == {}
    begun = time.time()
    with announced(store, "host:1:2") as again:
        again()
        assert 0 <= running(store)["host:1:2"] <= time.time() - begun + 1
    assert running(store) == {}


def test_who_is_silent_for_a_day_is_taken_for_killed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with announced(store, "host:1:2"):
        long_ago = time.time() - 25 * 3600
        os.utime(Path(store.runs) / "host:1:2", (long_ago, long_ago))
        assert running(store) == {}
