"""What results reach stays; what nothing refers to, and what killed runs left, is found."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from papa.files import sha256_of_json
from papa.storage.artifacts import metadata_below, published, remove
from papa.storage.store import Store
from papa.storage.unused import survey

STAGES = ("tokenise", "average", "rank", "probe", "aggregate")
USED, UNUSED, KILLED = (sha256_of_json(word) for word in ("used", "unused", "killed"))
KEPT = {f"{stage}/{USED}" for stage in STAGES}


def make(store: Store, stage: str, key: str, inputs: Iterable[str] = ()) -> str:
    """Publish an artifact that was built from others; its name."""
    metadata = {"stage": stage, "name": f"{stage} · {key}", "inputs": list(inputs)}
    with published(store.folder(stage, key), metadata) as scratch:
        (scratch / "data").write_text(f"{stage} {key}")
    return f"{stage}/{key}"


def fill(store: Store) -> None:
    """A finished study, an unfinished one, and what a killed run left."""
    before: list[str] = []
    for stage in STAGES:
        before.append(make(store, stage, USED, before))
    make(store, "probe", UNUSED, [make(store, "tokenise", UNUSED), before[1]])
    store.files.write(f"artifacts/average/{KILLED}/{UNUSED}/data", b"without metadata" * 9)


def prune(store: Store) -> None:
    for leftover in survey(store):
        remove(leftover.address)


def complete(store: Store) -> set[str]:
    return {
        f"{stage}/{key}" for stage in STAGES for key in metadata_below(f"{store.artifacts}/{stage}")
    }


def test_what_nothing_refers_to_is_found_and_deleted(store: Store) -> None:
    begun = time.time()
    fill(store)
    found = {
        leftover.address.removeprefix(f"{store.artifacts}/"): leftover for leftover in survey(store)
    }
    assert set(found) == {f"tokenise/{UNUSED}", f"probe/{UNUSED}", f"average/{KILLED}"}
    assert found[f"probe/{UNUSED}"].name == f"probe · {UNUSED}"
    assert found[f"probe/{UNUSED}"].reason == "nothing refers to it"
    assert found[f"average/{KILLED}"].reason.endswith("left by a run that was killed")
    assert all(leftover.size > 100 for leftover in found.values())
    # A store may keep whole seconds.
    assert all(begun - 1 <= leftover.modified <= time.time() + 1 for leftover in found.values())
    prune(store)
    assert complete(store) == KEPT
    assert survey(store) == []
    remove(store.folder("aggregate", USED))
    assert len(survey(store)) == len(KEPT) - 1, "the control: without results nothing is used"


OWN = (
    *("artifacts/photos/2020/a.jpg", "artifacts/readme.txt", f"artifacts/probe/{USED}/x"),
    *("artifacts/probe/drafts/chapter.txt", "scratch/features-of-mine/x", "locks/key.pem"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.make()
    fill(store)
    return store


def test_what_is_not_papas_stays_and_links_with_what_they_lead_to(
    folder: Store, tmp_path: Path
) -> None:
    for name in OWN:
        place = folder.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("mine")
    names = [f"artifacts/probe/{KILLED}", "artifacts/linked", "scratch/features-0123456789abcdef"]
    for number, name in enumerate(names):
        target = tmp_path / "other" / str(number) / KILLED
        target.mkdir(parents=True)
        (target / "data").write_text("mine")
        (folder.root / name).symlink_to(target.parent)
    prune(folder)
    assert [(folder.root / name).read_text() for name in OWN] == ["mine"] * len(OWN)
    assert all((folder.root / name).is_symlink() for name in names)
    assert len([*(tmp_path / "other").rglob("data")]) == len(names)
    assert complete(folder) == KEPT


def test_scratch_of_killed_runs_is_found(folder: Store) -> None:
    scratch = "studies/.demo.123.0123abcd", "scratch/features-0123456789abcdef"
    places = [folder.root / name for name in scratch]
    for place in places:
        place.mkdir(parents=True)
        (place / "data").write_text("left")
    (folder.root / "studies" / "demo").mkdir()
    places.append(Path(folder.folder("probe", USED), KILLED[:32]))
    places[-1].mkdir()
    (places[-1] / "data").write_text("left")
    prune(folder)
    assert not any(place.exists() for place in places)
    assert (folder.root / "studies" / "demo").is_dir()
    assert complete(folder) == KEPT
