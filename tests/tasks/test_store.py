"""A store says what it is; what results reach stays, and what nothing refers to is found."""

import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.files import sha256_of_json
from papa.progress import ignore_progress
from papa.spec import ExecutionSpec
from papa.storage import artifacts
from papa.storage.artifacts import (
    SHARDS,
    ArtifactReference,
    metadata_below,
    published,
    read_metadata,
    remove,
    verified,
)
from papa.storage.locks import active_runs, claimed
from papa.storage.store import MARKER, Store
from papa.storage.unused import find_unused
from papa.tasks.context import Context
from papa.tasks.step import Stage, Step
from papa.tasks.study_files import place_results
from tests.flows.conftest import everything
from tests.storage.artifacts import names, put

MARKERS = [b'{"format": 1}', b"{", b""]
STAGES = ("tokenise", "average", "train_lambda", "probe", "aggregate")
USED, UNUSED, KILLED = (sha256_of_json(word) for word in ("used", "unused", "killed"))
KEPT = {f"{stage}/{USED}" for stage in STAGES}
OWN = (
    *("artifacts/photos/2020/a.jpg", "artifacts/readme.txt", f"artifacts/probe/{USED}/x"),
    *("artifacts/probe/drafts/chapter.txt", "scratch/features-of-mine/x", "locks/key.pem"),
)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "store")
    return Store(request.getfixturevalue("s3_place"))


def test_what_holds_other_things_becomes_no_store(any_store: Store) -> None:
    mine = {"scratch/chapter.txt", "locks/poetry.lock", "artifacts/probe/data"}
    for name in mine:
        put(any_store.address, name, b"mine")
    with pytest.raises(ArtifactError, match=re.escape(any_store.address)):
        any_store.make()
    assert {*names(any_store.address)} == mine


def test_runs_that_begin_at_once_make_one_store(any_store: Store) -> None:
    assert not any_store.is_marked()
    with ThreadPoolExecutor(8) as threads:
        for job in [threads.submit(any_store.make) for _ in range(8)]:
            job.result()
    assert any_store.is_marked()
    assert names(any_store.address) == [MARKER]


def test_a_marked_store_may_hold_other_files(any_store: Store) -> None:
    any_store.make()
    put(any_store.address, "artifacts/probe/data", b"mine")
    any_store.make()


@pytest.mark.parametrize("marker", MARKERS)
def test_a_store_of_another_format_is_refused(any_store: Store, marker: bytes) -> None:
    put(any_store.address, MARKER, marker)
    for use in (any_store.make, any_store.is_marked):
        with pytest.raises(ArtifactError, match="format 3"):
            use()


def test_a_wrong_address_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="--store"):
        Store(tmp_path / "file" / "store").make()
    for address in ("s3:/bucket/x", "s3:bucket", "gs:/bucket"):
        with pytest.raises(ArtifactError, match=address):
            Store(address)


def test_each_uri_has_a_root_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def make(store: Store, stage: str, key: str, inputs: Iterable[str] = ()) -> str:
    metadata = {"stage": stage, "name": f"{stage} · {key}", "inputs": list(inputs)}
    with published(store.folder(stage, key), metadata) as scratch:
        (scratch / "data").write_text(f"{stage} {key}")
    return f"{stage}/{key}"


def fill(store: Store) -> None:
    artifacts: list[str] = []
    for stage in STAGES:
        artifacts.append(make(store, stage, USED, artifacts[-1:]))
    make(store, "probe", UNUSED, [make(store, "tokenise", UNUSED), artifacts[1]])
    store.files.write(f"artifacts/average/{KILLED}/{UNUSED}/data", b"without metadata" * 9)


def prune(store: Store) -> None:
    for leftover in find_unused(store):
        remove(leftover.address)


def complete(store: Store) -> set[str]:
    keys = {stage: metadata_below(f"{store.artifacts}/{stage}") for stage in STAGES}
    return {f"{stage}/{key}" for stage in STAGES for key in keys[stage]}


def test_unused_artifacts_are_deleted(any_store: Store) -> None:
    begun = time.time()
    fill(any_store)
    unused = {
        entry.address.removeprefix(f"{any_store.artifacts}/"): entry
        for entry in find_unused(any_store)
    }
    assert set(unused) == {f"tokenise/{UNUSED}", f"probe/{UNUSED}", f"average/{KILLED}"}
    assert unused[f"probe/{UNUSED}"].name == f"probe · {UNUSED}"
    assert unused[f"probe/{UNUSED}"].reason == "nothing refers to it"
    assert unused[f"average/{KILLED}"].reason.endswith("left by a run that was killed")
    assert all(entry.size > 100 for entry in unused.values())
    # A store may keep whole seconds.
    assert all(begun - 1 <= entry.modified <= time.time() + 1 for entry in unused.values())
    prune(any_store)
    assert complete(any_store) == KEPT
    assert find_unused(any_store) == []
    remove(any_store.folder("aggregate", USED))
    assert len(find_unused(any_store)) == len(KEPT) - 1, (
        "the control: without results nothing is used"
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_foreign_files_stay(store: Store, tmp_path: Path) -> None:
    """Links stay with what they lead to."""
    fill(store)
    scratch = "studies/.demo.123.0123abcd", "scratch/features-fedcba9876543210-1000"
    paths = [*(store.root / name for name in scratch)]
    paths += [Path(store.folder("probe", USED), name) for name in (KILLED[:32], SHARDS)]
    for path in paths:
        write(path / "data", "left")
    (store.root / "studies" / "demo").mkdir()
    for name in OWN:
        write(store.root / name, "mine")
    names = [f"artifacts/probe/{KILLED}", "artifacts/linked", "scratch/features-0123456789abcdef"]
    for number, name in enumerate(names):
        target = tmp_path / "other" / str(number)
        write(target / KILLED / "data", "mine")
        (store.root / name).symlink_to(target)
    prune(store)
    assert [(store.root / name).read_text() for name in OWN] == ["mine"] * len(OWN)
    assert all((store.root / name).is_symlink() for name in names)
    assert len([*(tmp_path / "other").rglob("data")]) == len(names)
    assert not any(path.exists() for path in paths)
    assert (store.root / "studies" / "demo").is_dir()
    assert complete(store) == KEPT


def exchange(artifact_folder: Path, outside: Path) -> None:
    """A folder of a store becomes a link to a copy of it that lies elsewhere."""
    shutil.copytree(artifact_folder, outside)
    artifact_folder.rename(artifact_folder.with_name(f"{artifact_folder.name}-before"))
    artifact_folder.symlink_to(outside)


def results_of(store: Store, study: str) -> ArtifactReference:
    address = store.folder("aggregate", USED)
    with published(address, {"stage": "aggregate", "key": USED, "name": study}) as folder:
        (folder / "table.csv").write_text("a table")
    return store.reference("aggregate", USED)


def claim(store: Store) -> None:
    with claimed(store, f"probe-{USED}"):
        pass


def keep_features(store: Store) -> None:
    step = Step(Stage(print, "probe", 1, "any worker"), "probe", {})
    with Context((step,), store, ExecutionSpec(), ignore_progress).scratch_folder() as scratch:
        (scratch / "values.bin").write_bytes(b"features")


Use = Callable[[Store, ArtifactReference], object]
USES: dict[str, Use] = {
    "read": lambda store, results: read_metadata(results),
    "check": lambda store, results: verified(results),
    "publish": lambda store, results: make(store, "aggregate", UNUSED),
    "remove": lambda store, results: remove(results.path),
    "place": lambda store, results: place_results(store, "small", results),
    "lock": lambda store, results: claim(store),
    "list unused": lambda store, results: find_unused(store),
    "unlock": lambda store, results: active_runs(store),
    "features": lambda store, results: keep_features(store),
}
FOLLOWED = {
    "artifacts": {"read", "check", "publish", "remove", "place", "list unused"},
    "artifacts/aggregate": {"read", "check", "publish", "remove", "place"},
    f"artifacts/aggregate/{USED}": {"read", "check", "remove", "place"},
    "studies": {"place"},
    "locks": {"lock", "place", "unlock"},
    "scratch": {"features"},
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("use", USES)
def test_a_link_that_appears_is_refused(store: Store, tmp_path: Path, name: str, use: str) -> None:
    """A link in the place of a store's folder, put there after the store was checked."""
    results = results_of(store, "small")
    place_results(store, "small", results)
    (store.root / "studies" / "small" / artifacts.METADATA).unlink()
    keep_features(store)
    exchange(store.root / name, tmp_path / "outside")
    before = everything(tmp_path / "outside")
    if use in FOLLOWED[name]:
        with pytest.raises(ArtifactError, match=f"{store.root / name} is a link"):
            USES[use](store, results)
    else:
        USES[use](store, results)
    assert everything(tmp_path / "outside") == before


def test_a_folder_that_is_being_filled_is_its_owners_alone(store: Store) -> None:
    artifact = store.root / "artifacts" / "probe" / USED
    artifact.mkdir(parents=True, mode=0o770)
    artifact.chmod(0o2770)
    with published(store.folder("probe", USED), {}) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700
        (folder / "scores.json").write_text("{}")
    assert stat.S_IMODE(verified(store.folder("probe", USED)).stat().st_mode) == 0o2770
