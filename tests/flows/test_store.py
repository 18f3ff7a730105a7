"""``--store`` with a URI, and ``papa prune``, as a person uses them."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from papa.processes import Process
from papa.storage.artifacts import published
from papa.storage.store import Store, announced
from tests.flows.conftest import SMALL, papa, refusal, said, write_study

LIGHT = {"ray", "mlflow", "prefect", "torch"}
KEY = "0123456789abcdef" * 4


@pytest.mark.server
@pytest.mark.parametrize("command", ["run", "plan", "prune"])
def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path: Path, command: str) -> None:
    more = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "PAPA_CACHE": str(tmp_path / "cache"),
    }
    study = [] if command == "prune" else [write_study(tmp_path, SMALL)]
    finished = papa(command, *study, "--store", "s3://papa/x", more=more)
    assert "at http://127.0.0.1:1 cannot be used" in refusal(finished)
    assert not finished.imported & LIGHT


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one artifact that nothing refers to."""
    store = Store(tmp_path / "store")
    store.make()
    with published(
        store.folder("probe", KEY), {"stage": "probe", "key": KEY, "name": "probe · [nobody's]"}
    ) as scratch:
        (scratch / "scores.json").write_text("{}")
    return store


def test_prune_shows_and_deletes_only_when_asked(store: Store) -> None:
    shown = said("prune", "--store", store.address)
    assert shown.code == 0
    assert "probe · [nobody's]" in shown.out
    assert "nothing refers to it" in shown.out
    assert "1 in all" in shown.out
    assert "nothing was deleted" in shown.out
    assert not store.damage("probe", KEY)
    deleted = said("prune", "--store", store.address, "--delete")
    assert deleted.code == 0
    assert "deleted." in deleted.out
    assert store.damage("probe", KEY)
    assert "is in use" in said("prune", "--store", store.address).out


def test_nothing_is_deleted_while_a_study_runs(store: Store) -> None:
    with announced(store):
        shown, refused = (
            said("prune", "--store", store.address, *more) for more in ([], ["--delete"])
        )
    assert f"A study uses the store ({Process.this()}" in shown.out
    assert "nothing was deleted, run again when it ended" in refusal(refused)
    assert not store.damage("probe", KEY)


def words_of(store: Store, process: str, days_ago: float) -> Path:
    """What a process left that said so many days ago that it uses the store."""
    place, moment = Path(store.runs) / process, time.time() - days_ago * 24 * 3600
    store.files.write(f"runs/{process}", b"")
    os.utime(place, (moment, moment))
    return place


def test_another_machine_is_believed_for_a_day_and_this_ones_killed_processes_never(
    store: Store,
) -> None:
    # Its id was used again, by this process.
    here = words_of(store, str(replace(Process.this(), started=1)), 0)
    there = words_of(store, "elsewhere:1:2", 0.5)
    refused = said("prune", "--store", store.address, "--delete")
    assert "(elsewhere:1:2)" in refusal(refused)
    assert here.exists()
    assert there.exists()
    words_of(store, "elsewhere:1:2", 2)
    deleted = said("prune", "--store", store.address, "--delete")
    assert "its process was killed" in deleted.out
    assert not here.exists()
    assert not there.exists()
    assert store.damage("probe", KEY)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.server
def test_a_folder_that_is_no_store_is_not_touched(tmp_path: Path) -> None:
    photo = "artifacts/photos/2020/a.jpg"
    for name in ("scratch/thesis/chapter.txt", photo, "locks/poetry.lock", "runs/notes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    study = write_study(tmp_path / "runs", SMALL)
    before = everything(tmp_path)
    for more in ([], ["--delete"]):
        line = refusal(said("prune", "--store", str(tmp_path), *more))
        assert "is no store of PAPA (papa-store.json is missing): give with --store the one" in line
    line = refusal(papa("run", study, "--store", str(tmp_path)))
    assert "holds other things and no PAPA store (papa-store.json is missing)" in line
    assert ": give a new or empty folder" in line
    assert everything(tmp_path) == before


def test_what_is_deleted_was_listed_and_nothing_else_goes(store: Store) -> None:
    store.files.write("scratch/thesis.txt", b"mine")
    before = everything(store.root)
    shown = said("prune", "--store", store.address)
    assert everything(store.root) == before, "without --delete nothing changes"
    said("prune", "--store", store.address, "--delete")
    after = everything(store.root)
    gone = {Path(path).relative_to(store.root).as_posix() for path in before.keys() - after.keys()}
    assert gone
    assert all(name.startswith(f"artifacts/probe/{KEY}/") for name in gone)
    assert f"artifacts/probe/{KEY}" in "".join(shown.out.split()).replace("│", "")


def test_there_is_no_store_to_prune(tmp_path: Path) -> None:
    none = tmp_path / "none"
    told = refusal(said("prune", "--store", str(none)))
    assert told.startswith(f"error: {none} is no store of PAPA")
