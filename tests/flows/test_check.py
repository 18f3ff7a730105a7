"""A study is looked at before anything is computed, and all that is wrong with it is told
at once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from papa.encoders.reference import embedded_folder
from tests.flows.conftest import SMALL, papa, rows_in, said, task_on, write_study
from tests.flows.conftest import words as errors

GONE = task_on("gone", {"kind": "files", "train": "no.jsonl", "validation": "no.jsonl"})
GOOD = [{"text": f"text number {row}", "label": row % 2} for row in range(20)]
WORDS = {"kind": "words", "columns": {"words": "words", "label": "tags"}, "metric": "entity_f1"}
TAGGED = [{"words": ["Rome", "is"], "tags": ["B-LOC", "O"]}] * 8
FAULTS = [
    "encoders.1 (",
    "gives ids up to 99999 and the model has embeddings for 30522 tokens: give the model's own",
    "tasks.1 (gone): there is no file at",
    "tasks.2 (columns): ",
    "tasks.3 (three): ",
    "tasks.4 (unseen): ",
    "tasks.5 (tags): ",
    "tasks.6 (long): task 'long' has slots 1024, but encoder 'embedded/all-MiniLM-L6-v2' takes "
    "512 at most",
    "/other' takes 512 at most",
]


@pytest.mark.parametrize(
    "command", ["check", "plan", pytest.param("run", marks=pytest.mark.server)]
)
def test_every_fault_is_a_sentence(command: str, tmp_path: Path) -> None:
    def task(name: str, *splits: list[Any], **others: Any) -> dict[str, Any]:
        return task_on(name, rows_in(tmp_path, name, *splits), **others)

    tasks = [
        *(SMALL["tasks"][0], GONE),
        task("columns", GOOD, columns={"text": "txet", "label": "label"}),
        task("three", [{**row, "label": place % 3} for place, row in enumerate(GOOD)], metric="f1"),
        task("unseen", GOOD, [*GOOD, {"text": "x", "label": 7}]),
        task("tags", [*TAGGED, {"words": ["x"], "tags": ["NN"]}], **WORDS),
        task("long", GOOD, slots=1024),
    ]
    words = Path(shutil.copytree(embedded_folder(), tmp_path / "other")) / "tokenizer.json"
    document = json.loads(words.read_text())
    document["model"]["vocab"]["the"] = 99_999
    words.write_text(json.dumps(document))
    encoders = [*SMALL["encoders"], "./nowhere", "./other"]
    study = write_study(tmp_path, SMALL | {"tasks": tasks, "encoders": encoders})
    tell = papa if command == "run" else said
    finished = tell(command, study, "--store", str(tmp_path / "store"))
    assert finished.code == 1
    first, *told = errors(finished)
    assert first == f"error: {len(FAULTS)} problems keep this study from running:"
    assert len(told) == len(FAULTS)
    for fault in FAULTS:
        assert sum(fault in sentence for sentence in told) == 1, fault
    assert not (tmp_path / "store" / "artifacts").exists()


def test_a_study_without_its_original_is_warned_of(tmp_path: Path) -> None:
    for fractions, warned in (([0.5, 0], True), ([1, 0], False)):
        study = write_study(tmp_path, SMALL | {"fractions": fractions})
        told = said("check", study, "--store", str(tmp_path / "store"))
        assert told.code == 0
        assert ("fractions have no 1" in told.out) == warned
