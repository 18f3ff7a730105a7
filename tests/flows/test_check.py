"""A study is looked at before anything is computed, and all that is wrong with it is told
at once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.check import check_study
from papa.encoders.reference import embedded_folder
from papa.errors import CheckError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.store import Store
from tests.flows.conftest import (
    SMALL,
    papa,
    rows_in,
    said,
    task_on,
    words,
    write_study,
)

NOWHERE = {"kind": "files", "train": "no.jsonl", "validation": "no.jsonl"}
GOOD = [{"text": f"text number {row}", "label": row % 2} for row in range(20)]
WORDS = {
    "kind": "words",
    "columns": {"words": "words", "label": "tags"},
    "metric": "entity_f1",
}
TAGGED = [{"words": ["Rome", "is"], "tags": ["B-LOC", "O"]}] * 8


@pytest.fixture
def seven(tmp_path: Path) -> str:
    """A study with seven faults, and one task without."""

    def task(name: str, *splits: list[Any], **others: Any) -> dict[str, Any]:
        return task_on(name, rows_in(tmp_path, name, *splits), **others)

    tasks = [
        *with_a_missing_one(),
        task("columns", GOOD, columns={"text": "txet", "label": "label"}),
        task("three", [{**row, "label": place % 3} for place, row in enumerate(GOOD)], metric="f1"),
        task("unseen", GOOD, [*GOOD, {"text": "x", "label": 7}]),
        task("tags", [*TAGGED, {"words": ["x"], "tags": ["NN"]}], **WORDS),
        task("long", GOOD, slots=1024),
    ]
    encoders = [*SMALL["encoders"], "./nowhere"]
    return write_study(tmp_path, SMALL | {"tasks": tasks, "encoders": encoders})


FAULTS = [
    "encoders.1 (",
    "tasks.1 (gone): there is no file at",
    "tasks.2 (columns): ",
    "tasks.3 (three): ",
    "tasks.4 (unseen): ",
    "tasks.5 (tags): ",
    "tasks.6 (long): task 'long' has slots 1024, but encoder 'embedded/all-MiniLM-L6-v2' takes "
    "512 at most",
]


@pytest.mark.parametrize(
    "command", ["check", "plan", pytest.param("run", marks=pytest.mark.server)]
)
def test_seven_faults_are_seven_sentences(command: str, seven: str, tmp_path: Path) -> None:
    tell = papa if command == "run" else said
    finished = tell(command, seven, "--store", str(tmp_path / "store"))
    assert finished.code == 1
    first, *told = words(finished)
    assert first == "error: 7 problems keep this study from running:"
    assert len(told) == len(FAULTS)
    for fault in FAULTS:
        assert sum(fault in sentence for sentence in told) == 1, fault
    assert not (tmp_path / "store" / "artifacts").exists()


def with_a_missing_one() -> list[Any]:
    return [*SMALL["tasks"], task_on("gone", NOWHERE)]


def refused(folder: Path, **changes: Any) -> tuple[str, ...]:
    """What is wrong with the small study after a change."""
    with pytest.raises(CheckError) as found:
        check_study(study(folder, **changes), Store(folder / "store"))
    return found.value.problems


def study(folder: Path, **changes: Any) -> StudySpec:
    return load_study(Path(write_study(folder, SMALL | changes)), ())


@pytest.mark.parametrize(
    ("texts", "labels", "changes", "sentence"),
    [
        ("x", (0, 5), {"labels": ["a", "b"]}, "has 5 as 'label' where the"),
        (
            "x",
            (-1, -1),
            {},
            "every 'label' is -1: -1 marks the hidden labels of GLUE's",
        ),
        ("x", (0.5, 0.5), {}, "has 0.5 as 'label', which is no class"),
        ("x", ("red", "red"), {"metric": "spearman"}, "'red' as 'label' where a regression task"),
        (1, (0, 0), {}, "column 'text' holds int64, not text"),
        ("x", (0, 0), {"metric": "f1"}, "metric f1 needs two classes, and 'label' has 1 (0)"),
        (
            "x",
            ("no", "yes"),
            {"metric": "f1", "positive": "yse"},
            "positive is 'yse', and no class has that name (did you mean 'yes'?): name one of",
        ),
    ],
)
def test_labels_are_read(
    tmp_path: Path, texts: object, labels: tuple[Any, ...], changes: dict[str, Any], sentence: str
) -> None:
    source = rows_in(tmp_path, "rows", [{"text": texts, "label": label} for label in labels])
    (only,) = refused(tmp_path, tasks=[task_on("t", source, **changes)])
    assert only.startswith("tasks.0 (t): ")
    assert sentence in only


def test_a_study_without_its_original_is_warned_of(tmp_path: Path) -> None:
    without, store = SMALL | {"fractions": [0.5, 0]}, str(tmp_path / "store")
    told = said("check", write_study(tmp_path, without), "--store", store)
    assert told.code == 0
    assert "fractions have no 1" in told.out
    assert "fractions" not in said("check", write_study(tmp_path, SMALL), "--store", store).out


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_here_is_told_with_the_rest(tmp_path: Path) -> None:
    both = refused(
        tmp_path,
        tasks=with_a_missing_one(),
        execution={"device": "cuda", "workers": 1},
    )
    assert [problem.partition(":")[0] for problem in both] == ["tasks.1 (gone)", "execution"]
    assert both[1].startswith("execution: device 'cuda' needs a GPU")


def test_a_tokenizer_of_another_model_is_told(tmp_path: Path) -> None:
    """Its ids reach beyond the weights' embeddings."""
    shutil.copytree(embedded_folder(), tmp_path / "encoder")
    path = tmp_path / "encoder" / "tokenizer.json"
    document = json.loads(path.read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary["the"] = 99_999
    path.write_text(json.dumps(document))
    (told,) = refused(tmp_path, encoders=["./encoder"])
    assert told.startswith("encoders.0")
    assert (
        "gives ids up to 99999 and the model has embeddings for 30522 tokens: give the model's own"
        in told
    )
