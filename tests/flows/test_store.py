"""``--store`` with a URI, and ``papa prune``, as a person uses them."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from papa.processes import Process
from papa.storage.artifacts import published
from papa.study.store import Store, announced
from tests.flows.conftest import SMALL, papa, refusal, said, write_study

LIGHT = {"ray", "mlflow", "prefect", "torch"}
KEY = "0123456789abcdef" * 4


@pytest.mark.server
@pytest.mark.parametrize(
    ("store", "sentence"),
    [
        ("s3://papa/x", "at http://127.0.0.1:1 cannot be reached"),
        ("gs://papa/x", "a package for 'gs://' is not installed"),
        ("s3:/papa/x", "is no address of a store: give a folder, or a URI such as s3://"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "prune"])
def test_a_store_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, command: str, store: str, sentence: str
) -> None:
    more = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "PAPA_CACHE": str(tmp_path / "cache"),
    }
    study = [] if command == "prune" else [write_study(tmp_path, SMALL)]
    finished = (papa if command == "run" else said)(command, *study, "--store", store, more=more)
    assert sentence in refusal(finished)
    if command == "run":
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
    assert store.holds("probe", KEY)
    deleted = said("prune", "--store", store.address, "--delete")
    assert deleted.code == 0
    assert "deleted." in deleted.out
    assert not store.holds("probe", KEY)
    assert "is in use" in said("prune", "--store", store.address).out


def test_nothing_is_deleted_while_a_study_runs(store: Store) -> None:
    with announced(store):
        shown, refused = (
            said("prune", "--store", store.address, *more) for more in ([], ["--delete"])
        )
    assert "A study uses the store (process" in shown.out
    assert "so nothing was deleted: run again when it ended" in refusal(refused)
    assert store.holds("probe", KEY)


def words_of(store: Store, process: str, days_ago: float) -> Path:
    """What a process left that said so many days ago that it uses the store."""
    place, moment = Path(store.runs) / process, time.time() - days_ago * 24 * 3600
    store.files.write(f"runs/{process}", b"")
    os.utime(place, (moment, moment))
    return place


@pytest.mark.parametrize("days_ago", [0, 2, 30 * 365])
def test_what_a_killed_process_said_goes_however_long_ago(store: Store, days_ago: float) -> None:
    # Its id was used again, by this process.
    place = words_of(store, str(replace(Process.this(), started=1)), days_ago)
    deleted = said("prune", "--store", store.address, "--delete")
    assert deleted.code == 0
    assert "its process was killed" in deleted.out
    assert not place.exists()
    assert not store.holds("probe", KEY)


def test_another_machine_is_believed_for_a_day(store: Store) -> None:
    place = words_of(store, "elsewhere:1:2", 0.5)
    left = store.scratch / "papa-ray-abc"
    left.mkdir(parents=True)
    refused = said("prune", "--store", store.address, "--delete")
    assert "(process 1 on elsewhere, last heard of" in refusal(refused)
    assert place.exists()
    assert left.exists()
    words_of(store, "elsewhere:1:2", 2)
    assert said("prune", "--store", store.address, "--delete").code == 0
    assert not place.exists()
    assert not left.exists()


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
    this = Process.this()
    store.locks.mkdir()
    for name in (f"locks/probe-{KEY}.lock", "locks/poetry.lock", "scratch/thesis.txt"):
        (store.root / name).touch()
    ended = str(Process(this.host, this.pid, this.started + 1))
    store.files.write(f"runs/{ended}", b"")
    before = everything(store.root)
    shown = said("prune", "--store", store.address)
    assert everything(store.root) == before, "without --delete nothing changes"
    deleted = said("prune", "--store", store.address, "--delete")
    after = everything(store.root)
    gone = {Path(path).relative_to(store.root) for path in before.keys() - after.keys()}
    artifact = Path("artifacts/probe") / KEY
    assert {path for path in gone if artifact in path.parents} > {artifact / "metadata.json"}
    assert {path for path in gone if artifact not in path.parents} == {
        Path(f"locks/probe-{KEY}.lock"),
        Path("runs") / ended,
    }
    for text in (shown.out, deleted.out):
        listed = "".join(text.split()).replace("│", "")
        assert all(
            str(path) in listed for path in (artifact, f"locks/probe-{KEY}.lock", f"runs/{ended}")
        )
        assert "Not PAPA's, left: scratch/thesis.txt, locks/poetry.lock." in text


def test_there_is_no_store_to_prune(tmp_path: Path) -> None:
    none = tmp_path / "none"
    told = refusal(said("prune", "--store", str(none)))
    assert told.startswith(f"error: {none} is no store of PAPA")
