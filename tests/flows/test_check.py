"""A study is looked at before anything is computed, and all that is wrong with it is told
at once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flows.check import check_study
from papa.corpora import rows
from papa.encoders.reference import embedded_folder
from papa.errors import CheckError
from papa.spec import StudySpec
from papa.spec.file import load_study
from papa.storage.metadata import sha256_of_file
from papa.storage.remembered import remember, status_of
from papa.study.store import Store
from tests.flows.conftest import (
    SMALL,
    environment,
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


def test_weights_that_changed_without_a_trace_are_found_before_a_run(tmp_path: Path) -> None:
    folder, other = (
        Path(shutil.copytree(embedded_folder(), tmp_path / name)) for name in ("encoder", "other")
    )
    file = other / "model.safetensors"
    doubled = {name: 2 * tensor for name, tensor in load_file(file).items()}
    save_file(doubled, file, {"format": "pt"})
    spec, store = study(tmp_path, encoders=[str(folder)]), Store(tmp_path / "store")
    check_study(spec, store)
    check_study(study(tmp_path, encoders=[str(other)]), store)
    # What the file system says of the file is what it said of another content.
    remember(status_of(folder / "model.safetensors"), sha256_of_file(other / "model.safetensors"))
    check_study(spec, store, fetch_weights=False)
    with pytest.raises(CheckError, match="changed without a trace in the file system"):
        check_study(spec, store)
    remember(status_of(folder / "model.safetensors"), "0" * 64)
    with pytest.raises(CheckError, match="changed without a trace in the file system"):
        check_study(spec, store, fetch_weights=False)


def with_a_missing_one() -> list[Any]:
    return [*SMALL["tasks"], task_on("gone", NOWHERE)]


def refused(folder: Path, **changes: Any) -> tuple[str, ...]:
    """What is wrong with the small study after a change."""
    with pytest.raises(CheckError) as found:
        check_study(study(folder, **changes), Store(folder / "store"))
    return found.value.problems


def study(folder: Path, **changes: Any) -> StudySpec:
    return load_study(Path(write_study(folder, SMALL | changes)), ())


def test_both_columns_are_told_and_the_nearest_is_first(tmp_path: Path) -> None:
    rows = [{"sentence": "x", "label": 0, "id": "a"}, {"sentence": "y", "label": 1, "id": "b"}]
    columns = {"text": "sentense", "label": "lable"}
    both = refused(tmp_path, tasks=[task_on("t", rows_in(tmp_path, "rows", rows), columns=columns)])
    assert [problem.partition(": no column ")[2] for problem in both] == [
        "'sentense' (found: sentence, label, id): set the task's columns to fit it",
        "'lable' (found: label, sentence, id): set the task's columns to fit it",
    ]


def test_a_file_that_is_damaged_in_its_middle_is_told(tmp_path: Path) -> None:
    source = rows_in(tmp_path, "rows", GOOD * 50)
    path = tmp_path / source["train"]
    path.write_text(path.read_text().replace('"label": 1}', '"label": ', 1))
    (only,) = refused(tmp_path, tasks=[task_on("t", source)])
    assert only.startswith("tasks.0 (t): ")
    assert "line 2 is not JSON" in only


def test_a_corpus_of_constants_is_looked_at_once(tmp_path: Path) -> None:
    corpus = task_on("other", NOWHERE)
    constants = [{"kind": "average", "corpus": corpus}]
    tasks = [task_on(name, rows_in(tmp_path, name, GOOD)) for name in ("first", "second")]
    (only,) = refused(tmp_path, constants=constants, tasks=tasks)
    assert only.startswith("constants.0.corpus (other): there is no file at")


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
            "positive is 'yse', and no class has that name: use one of yes, no",
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


def test_bfloat16_on_a_cpu_without_it_is_told_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    execution = {"device": "cpu", "workers": 1}
    both = refused(
        tmp_path,
        precision="bfloat16",
        tasks=with_a_missing_one(),
        execution=execution,
    )
    assert [problem.partition(":")[0] for problem in both] == ["tasks.1 (gone)", "precision"]


@pytest.mark.server
def test_a_limit_of_file_sizes_is_one_sentence(tmp_path: Path) -> None:
    program = 'ulimit -f 200; exec "$0" -c "from flows.cli import app; app()" "$@"'
    arguments = ("run", write_study(tmp_path, SMALL), "--store", str(tmp_path / "store"))
    command = ["bash", "-c", program, sys.executable, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert finished.returncode == 1
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: a file may have 204,800 bytes at most here (ulimit -f)")
    assert not (tmp_path / "store").exists()


def test_a_study_without_its_original_is_warned_of(tmp_path: Path) -> None:
    without, store = SMALL | {"fractions": [0.5, 0]}, str(tmp_path / "store")
    told = said("check", write_study(tmp_path, without), "--store", store)
    assert told.code == 0
    assert "warning: fractions have no 1" in told.out
    assert "warning" not in said("check", write_study(tmp_path, SMALL), "--store", store).out


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_here_is_told_with_the_rest(tmp_path: Path) -> None:
    both = refused(
        tmp_path,
        tasks=with_a_missing_one(),
        execution={"device": "cuda", "workers": 1},
    )
    assert [problem.partition(":")[0] for problem in both] == ["tasks.1 (gone)", "execution"]
    assert both[1].startswith("execution: device 'cuda' needs a GPU")


def test_what_is_tokenised_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from papa.progress import ignore_progress
    from papa.spec import ExecutionSpec
    from papa.study.inputs import check_inputs
    from papa.study.run import compute
    from papa.study.steps import text_step

    spec, store = study(tmp_path), Store(tmp_path / "store")
    inputs = check_inputs(spec)
    (encoder,), (text,) = inputs.encoders, spec.tasks
    step = text_step("", encoder, text, spec.layout, inputs.fingerprints[text.source])
    read: list[str] = []
    real: Callable[..., Any] = rows.read_source
    monkeypatch.setattr(
        "papa.corpora.preview.read_source", lambda *of: read.append(of[1]) or real(*of)
    )
    before = check_study(spec, store, workers=1)
    assert read == ["train", "validation"]
    compute(step=step, store=store, execution=ExecutionSpec(), progress=ignore_progress)
    after = check_study(spec, store, workers=1)
    assert read == ["train", "validation"]
    assert after.previews == before.previews


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
