"""Bad input gives one sentence and an exit code that is not 0, before any engine is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.conftest import SMALL, papa, words, write_study

pytestmark = pytest.mark.server

LIGHT = {"ray", "mlflow", "prefect"}


def test_version_is_printed_without_engines() -> None:
    finished = papa("--version")
    assert finished.code == 0
    assert finished.out.startswith("papa 0.")
    assert not finished.imported


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"enocders": []}, "unknown key 'enocders'"),
        ({"fractions": [1, 1.5]}, "'fractions.1'"),
        ({"tasks": ["colla"]}, "task 'colla' is unknown"),
        ({"constants": ["avarage"]}, "'constants.0.kind' is 'avarage'"),
        ({"seeds": []}, "'seeds'"),
    ],
)
def test_impossible_studies_are_one_sentence(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    finished = papa("run", write_study(tmp_path, SMALL | change), "--store", str(tmp_path / "store"))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: ")
    assert sentence in line
    assert not finished.imported
    assert not (tmp_path / "store").exists()


def test_a_missing_study_is_one_sentence(tmp_path: Path) -> None:
    finished = papa("plan", str(tmp_path / "none.yaml"))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith(f"error: there is no study at {tmp_path / 'none.yaml'}")


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("tasks.0.slots=1024", "has slots 1024, but encoder 'embedded/all-MiniLM-L6-v2' takes 512 at most"),
        ("encoders.0.name=/nowhere/encoder", "there is no encoder folder at /nowhere/encoder"),
        ("tasks.0.source={kind: files, train: no.csv, validation: no.csv}", "there is no file at"),
    ],
)
def test_what_does_not_fit_is_said_before_prefect_starts(tmp_path: Path, override: str, sentence: str) -> None:
    store = tmp_path / "store"
    finished = papa("run", write_study(tmp_path, SMALL), "--set", override, "--store", str(store))
    assert finished.code == 1
    (line,) = words(finished)
    assert line.startswith("error: ")
    assert sentence in line
    assert not finished.imported & LIGHT
    assert not (store / "artifacts").exists()


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finished = papa("run", write_study(tmp_path, SMALL), "--store", str(tmp_path / "file" / "store"))
    assert finished.code == 1
    (line,) = words(finished)
    assert "cannot be written" in line
    assert "--store" in line


def test_models_and_tasks_are_listed() -> None:
    models, tasks = papa("models"), papa("tasks")
    assert models.code == tasks.code == 0
    assert all(kind in models.out for kind in ("bert", "roberta", "electra", "embedded/all-MiniLM-L6-v2"))
    assert all(name in tasks.out for name in ("cola", "mnli", "reviews"))


def test_a_plan_computes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    finished = papa("plan", write_study(tmp_path, SMALL), "--store", str(store))
    assert finished.code == 0
    assert "0 of 10 steps are cached; 10 would run" in finished.out
    assert not finished.imported & LIGHT
    assert not store.exists()
