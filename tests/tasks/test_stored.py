"""A study file in a store names files of whoever runs it again: those outside are refused."""

import json
from pathlib import Path

import pytest

from papa.errors import SpecError
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.tasks.stored import load_to_run
from papa.tasks.study_files import save_study
from tests.flows.conftest import invoke, refusal, rows_in, task_on, write_study

ROWS = [{"text": f"text number {row}", "label": row % 2} for row in range(8)]
EMBEDDED = "embedded/all-MiniLM-L6-v2"


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    """The user's own file of a study, beside the rows that it names."""
    tasks = [task_on("texts", rows_in(tmp_path, "texts", ROWS))]
    return Path(write_study(tmp_path, {"name": "own", "encoders": [EMBEDDED], "tasks": tasks}))


@pytest.fixture
def stored(store: Store, user_file: Path) -> Path:
    return save_study(store, load_study(user_file))


def test_the_users_own_file_needs_no_option(user_file: Path, stored: Path) -> None:
    assert load_to_run(user_file) == load_study(stored)


def test_a_stored_file_needs_its_sources_allowed(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=str(tmp_path / "texts-train.jsonl")):
        load_to_run(stored)
    with pytest.raises(SpecError, match=str(tmp_path / "texts-validation.jsonl")):
        load_to_run(stored, allowed=[tmp_path / "texts-train.jsonl"])
    both = [tmp_path / "texts-train.jsonl", tmp_path / "texts-validation.jsonl"]
    study = load_study(stored)
    assert load_to_run(stored, allowed=both) == study
    assert load_to_run(stored, allowed=[tmp_path]) == study


def test_a_folder_of_a_like_name_is_not_allowed(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        load_to_run(stored, allowed=[tmp_path / "text"])


def test_links_count_as_what_they_name(store: Store, stored: Path, user_file: Path) -> None:
    link = user_file.with_name("link.yaml")
    link.symlink_to(stored)
    with pytest.raises(SpecError, match="texts-train"):
        load_to_run(link)
    inside = store.study_path("rows.jsonl")
    inside.symlink_to(user_file.with_name("texts-train.jsonl"))
    changes = [f"tasks.0.source.{split}={inside}" for split in ("train", "validation")]
    with pytest.raises(SpecError, match="texts-train"):
        load_to_run(stored, changes)


def test_what_lies_in_the_store_is_allowed(store: Store, stored: Path) -> None:
    inside = store.study_path("rows.jsonl")
    inside.write_text("")
    changes = [f"tasks.0.source.{split}={inside}" for split in ("train", "validation")]
    assert load_to_run(stored, changes).name == "own"


@pytest.mark.parametrize(
    ("change", "file_name"),
    [
        ("encoders=[{folder}/encoder]", "{folder}/encoder"),
        ("reference={folder}/paper.csv", "{folder}/paper.csv"),
        ("orders=['scores:{folder}/scores.txt']", "{folder}/scores.txt"),
        (
            "substitutes=[{{kind: average, corpus: {{name: reviews, source: {{kind: files, "
            "train: {folder}/corpus.txt, validation: {folder}/corpus.txt}}}}}}]",
            "{folder}/corpus.txt",
        ),
    ],
)
def test_every_named_file_counts(store: Store, tmp_path: Path, change: str, file_name: str) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "paper.csv").touch()
    (tmp_path / "scores.txt").write_text("1 2\n3 4\n")
    stored = store.study_path("planted.yaml")
    stored.parent.mkdir()
    stored.write_text(json.dumps({"name": "p", "encoders": [EMBEDDED], "tasks": ["reviews"]}))
    load_to_run(stored)
    with pytest.raises(SpecError, match=file_name.format(folder=tmp_path)):
        load_to_run(stored, [change.format(folder=tmp_path)])


@pytest.mark.parametrize("command", ["run", "check", "plan", "deploy"])
def test_commands_refuse_it(command: str, store: Store, stored: Path, tmp_path: Path) -> None:
    line = refusal(invoke(command, str(stored), "--store", store.address))
    assert str(tmp_path / "texts-train.jsonl") in line


@pytest.mark.parametrize("command", ["check", "plan"])
def test_commands_take_allowed(command: str, store: Store, stored: Path, tmp_path: Path) -> None:
    options = ("--allow-source", str(tmp_path), "--store", store.address)
    finished = invoke(command, str(stored), *options)
    assert finished.code == 0, finished.err
