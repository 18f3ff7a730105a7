"""``--store`` with a URI, and ``papa prune``, as a person uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.processes import Process
from papa.storage.artifacts import published
from papa.study.store import Store, announced
from tests.flows.conftest import SMALL, finish, papa, said, start, words, write_study

LIGHT = {"ray", "mlflow", "prefect", "torch"}
KEY = "0123456789abcdef" * 4


@pytest.mark.server
@pytest.mark.parametrize(
    ("store", "more", "sentence"),
    [
        (
            "s3://papa/x",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
            "at http://127.0.0.1:1 cannot be reached",
        ),
        ("gs://papa/x", {}, "a package for 'gs://' is not installed"),
        (
            "s3:/papa/x",
            {},
            "'s3:/papa/x' is no address of a store: give a folder, or a URI such as s3://",
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "prune"])
def test_a_store_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, command: str, store: str, more: dict[str, str], sentence: str
) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "PAPA_CACHE": str(tmp_path / "cache"),
    }
    study = [] if command == "prune" else [write_study(tmp_path, SMALL)]
    with start(command, *study, "--store", store, more={**keys, **more}) as process:
        finished = finish(process)
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: ")
    assert sentence in line
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
    with announced(store, str(Process.this())):
        shown, refused = (
            said("prune", "--store", store.address),
            said("prune", "--store", store.address, "--delete"),
        )
    assert "A study uses the store (process" in shown.out
    assert refused.code == 1
    (line,) = words(refused)
    assert "so nothing was deleted: run again when it ended" in line
    assert store.holds("probe", KEY)


def test_a_study_whose_process_is_gone_does_not_hold_the_store(store: Store) -> None:
    this = Process.this()
    with announced(store, str(Process(this.host, this.pid, this.started + 1))):
        assert said("prune", "--store", store.address, "--delete").code == 0
    assert not store.holds("probe", KEY)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.server
def test_a_folder_that_is_no_store_is_not_touched(tmp_path: Path) -> None:
    for name in (
        "scratch/thesis/chapter.txt",
        "artifacts/photos/2020/a.jpg",
        "locks/poetry.lock",
        "runs/notes",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = everything(tmp_path)
    for more in ([], ["--delete"]):
        finished = said("prune", "--store", str(tmp_path), *more)
        assert finished.code == 1
        (line,) = words(finished)
        assert (
            "does not say that it is a PAPA store (papa-store.json is missing), so nothing was "
            "touched" in line
        )
    refused = papa("run", write_study(tmp_path / "runs", SMALL), "--store", str(tmp_path))
    assert refused.code == 1
    (line,) = words(refused)
    assert (
        "holds other things and no PAPA store (papa-store.json is missing): give a new or empty "
        "folder" in line
    )
    (tmp_path / "runs" / "study.yaml").unlink()
    assert everything(tmp_path) == before


def test_what_is_deleted_was_listed_and_nothing_else_goes(store: Store) -> None:
    this = Process.this()
    store.locks.mkdir()
    for name in (f"locks/probe-{KEY}.lock", "locks/poetry.lock", "scratch/thesis.txt"):
        (store.root / name).touch()
    ended = str(Process(this.host, this.pid, this.started + 1))
    with announced(store, ended):
        before = everything(store.root)
        shown = said("prune", "--store", store.address)
        assert everything(store.root) == before, "without --delete nothing changes"
        deleted = said("prune", "--store", store.address, "--delete")
        after = everything(store.root)
    gone = {Path(path).relative_to(store.root) for path in before.keys() - after.keys()}
    artifact = Path("artifacts/probe") / KEY
    assert gone == {
        artifact / "metadata.json",
        artifact / "scores.json",
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
    finished = said("prune", "--store", str(tmp_path / "none"))
    assert finished.code == 1
    assert words(finished) == [
        f"error: there is no store at {tmp_path / 'none'}: give another folder with --store"
    ]
