"""``papa prune``, and a ``--store`` that is none; what is in use is in
``tests/study/test_unused.py``.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from papa.storage.artifacts import published
from papa.storage.store import Store
from papa.study.locks import in_use
from tests.flows.conftest import SMALL, everything, papa, refusal, said, write_study

KEY = "0123456789abcdef" * 4


@pytest.mark.server
@pytest.mark.parametrize("command", ["run", "plan", "prune"])
def test_a_store_that_cannot_be_reached_is_one_sentence(tmp_path: Path, command: str) -> None:
    more = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "PAPA_CACHE": str(tmp_path / "cache"),
    }
    study = [] if command == "prune" else [write_study(tmp_path, SMALL)]
    finished = papa(command, *study, "--store", "s3://papa/x", more=more)
    assert "at http://127.0.0.1:1 cannot be used" in refusal(finished)
    assert not finished.imported & {"ray", "mlflow", "prefect", "torch"}


def test_what_nothing_refers_to_is_deleted_when_asked_while_no_study_runs(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.make()
    metadata = {"stage": "probe", "key": KEY, "name": "probe · [nobody's]"}
    with published(store.folder("probe", KEY), metadata) as scratch:
        (scratch / "scores.json").write_text("{}")
    store.files.write("scratch/thesis.txt", b"mine")
    before, prune = everything(store.root), ("prune", "--store", store.address)
    with in_use(store):
        assert f"A study uses the store ({socket.gethostname()}-{os.getpid()})" in said(*prune).out
        refused = said(*prune, "--delete")
    assert "nothing was deleted, run again when it ended" in refusal(refused)
    shown = said(*prune).out
    for told in ("probe · [nobody's]", "nothing refers to it", "1 in all", "nothing was deleted"):
        assert told in shown
    assert f"artifacts/probe/{KEY}" in "".join(shown.split()).replace("│", "")
    assert everything(store.root) == before
    assert "deleted." in said(*prune, "--delete").out
    left = everything(store.root)
    gone = {Path(path).relative_to(store.root).as_posix() for path in before.keys() - left.keys()}
    assert gone
    assert all(name.startswith(f"artifacts/probe/{KEY}/") for name in gone)
    assert "is in use" in said(*prune).out


@pytest.mark.server
def test_a_folder_that_is_no_store_is_not_touched(tmp_path: Path) -> None:
    for name in ("artifacts/photos/2020/a.jpg", "locks/poetry.lock", "runs/notes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    study = write_study(tmp_path / "runs", SMALL)
    before = everything(tmp_path)
    for place in (tmp_path, tmp_path / "none"):
        line = refusal(said("prune", "--store", str(place), "--delete"))
        assert line.startswith(f"error: {place} is no store of PAPA (papa-store.json is missing)")
    line = refusal(papa("run", study, "--store", str(tmp_path)))
    assert "holds other things and no PAPA store (papa-store.json is missing)" in line
    assert ": give a new or empty folder" in line
    assert everything(tmp_path) == before
