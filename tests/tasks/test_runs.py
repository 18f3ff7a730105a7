"""Runs that several processes make at once: one of each key stays, with all children below it."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from papa.errors import ArtifactError
from papa.storage.artifacts import published
from papa.study.store import Store
from tasks.mlflow import connect
from tasks.runs import StudyRuns
from tasks.shown import Entry, run_links
from tasks.track import RUNS, logged_runs
from tests.tasks.tracked import address_in, logged, tracked

PARENT = Entry("parent", "parent", {}, {"papa.role": "parent"})
FIRST, SECOND = (Entry(name, name, {}, {"papa.role": name}, PARENT) for name in ("first", "second"))


@pytest.mark.usefixtures("mlflow_database")
@pytest.mark.parametrize("over", [True, False], ids=["over", "running"])
def test_the_oldest_run_stays_though_it_appears_after_another_process_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    address = address_in(tmp_path)
    early, late = (StudyRuns(connect(address), Store(tmp_path), "study", ()) for _ in range(2))
    # MLflow's client takes the time before the database takes the run.
    monkeypatch.setattr(late.client, "create_run", partial(late.client.create_run, start_time=1))

    def log(runs: StudyRuns, *children: Entry) -> None:
        for child in children:
            runs.write(child, {"score": 0.5})
        runs.agree()

    def end(runs: StudyRuns) -> None:
        runs.write(PARENT)
        runs.agree()

    log(early, FIRST, SECOND)
    if over:
        end(early)
    log(late, FIRST)
    if not over:
        # One parent more: `early` still writes to it.
        assert sorted(logged(address, "study")["key"]) == ["first", "parent", "parent", "second"]
        end(early)
    end(late)
    runs = logged(address, "study").set_index("key")
    assert sorted(runs.index) == ["first", "parent", "second"]
    assert set(runs["status"]) == {"FINISHED"}
    for key in ("first", "parent"):
        assert runs["id"][key] == late.by_key[key].info.run_id
    assert set(runs["parent"][["first", "second"]]) == {runs["id"]["parent"]}


def test_links_of_a_finished_study_lead_to_the_server_that_the_step_knows(tmp_path: Path) -> None:
    """Whatever whoever can write to the store says there; what lacks a name is one sentence."""
    store, track = Store(tmp_path), tracked("study", "http://user:secret@host:5000")
    store.make()
    said = {"address": "http://elsewhere", "experiment": "study", "experiment_id": "1"}
    with published(track.folder(store), {}) as scratch:
        (scratch / RUNS).write_text(json.dumps({**said, "parents": {"m": "2"}}))
    document = logged_runs(track, store)
    assert document["address"] == "http://user:***@host:5000"
    assert all(link.startswith("http://host:5000/") for link in run_links(document).values())
    shutil.rmtree(track.folder(store))
    with published(track.folder(store), {}) as scratch:
        (scratch / RUNS).write_text(json.dumps(said))
    with pytest.raises(ArtifactError, match="holds what no step of this PAPA makes"):
        logged_runs(track, store)


def test_a_study_whose_database_is_gone_is_logged_again(tmp_path: Path) -> None:
    store, track = Store(tmp_path), tracked("study", address_in(tmp_path))
    store.make()
    with published(track.folder(store), {"stage": track.stage, "key": track.key}):
        pass
    (tmp_path / "mlflow.db").touch()
    track.forget_lost(store)
    assert track.is_complete(store)
    (tmp_path / "mlflow.db").unlink()
    track.forget_lost(store)
    assert not track.is_complete(store)
