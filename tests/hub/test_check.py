"""Studies that name encoders and datasets of the hub are looked at in one go, without downloading
what is large.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flows.check import check_study
from papa.errors import CheckError
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from tests.hub.conftest import Folder
from tests.hub.datasets import ROWS
from tests.hub.server import Hub

BERT, DEBERTA = "google-bert/bert-base-uncased", "microsoft/deberta-base"
TASKS = ["cola", "sst2", "mrpc", "mnli", "ner", "pos", "mlm"]


@pytest.fixture
def all_public(public: Hub, encoder_folder: Folder) -> Hub:
    """The hub with the registry's datasets and two encoders."""
    for name in (BERT, DEBERTA):
        public.publish("models", name, encoder_folder(name))
    return public


def study(*tasks: Any, encoders: tuple[str, ...] = (BERT, DEBERTA)) -> StudySpec:
    named = ({"name": task} if isinstance(task, str) else task for task in tasks)
    document = {"name": "study", "encoders": list(encoders), "execution": {"workers": 1}}
    document["tasks"] = [{"slots": 32, **task} for task in named]
    return resolve_study(document, folder=Path(), origin="test")


def test_the_papers_tasks_are_ready(all_public: Hub, tmp_path: Path) -> None:
    checked = check_study(study(*TASKS), Store(tmp_path), fetch_weights=False)
    found = {task.name: look for task, look in checked.previews.items()}
    assert found.keys() == {*TASKS}
    assert found["mnli"].label_names == ("entailment", "neutral", "contradiction")
    assert (found["ner"].rows, found["mlm"].rows) == ((ROWS, ROWS), (ROWS, ROWS // 2))
    assert not any(file.endswith((".safetensors", ".bin")) for file in all_public.fetched())
    for name, note in zip((BERT, DEBERTA), checked.unchecked, strict=False):
        assert f"({name}): whether its weights fit" in note
    inputs = checked.inputs
    named = (*inputs.study.encoders, *(task.source for task in inputs.study.tasks))
    assert all(re.fullmatch("[0-9a-f]{40}", one.revision) for one in named)
    assert {encoder.layers for encoder in inputs.encoders} == {2}


def test_all_that_is_wrong_is_told(all_public: Hub, tmp_path: Path) -> None:
    glue = {"kind": "hub", "name": "nyu-mll/glue", "config": "mprc"}
    cola = {"name": "cola", "columns": {"text": "sentense"}}
    wnut = {"name": "wnut17", "labels": ["O", "B-x", "I-x"]}
    tasks = ("sst2", cola, {"name": "mrpc", "source": glue}, wnut)
    wrong = study(*tasks, encoders=(BERT, "google-bert/bert-bsae-uncased"))
    with pytest.raises(CheckError) as told:
        check_study(wrong, Store(tmp_path), for_plan=True, fetch_weights=False)
    expected = (
        r"encoders\.1 \(google-bert/bert-bsae-uncased\): .* is not on the hub, or it is private",
        r"tasks\.1 \(cola\): .*no column 'sentense' \(found: sentence, ",
        r"tasks\.2 \(mrpc\): .*'mprc' not found\. Available: \['cola'",
        r"tasks\.3 \(wnut17\): .*names the classes of 'ner_tags' O, B-corpor",
    )
    problems = str(told.value).split("\n  ")[1:]
    assert len(problems) == len(expected)
    assert all(any(re.match(said, one) for one in problems) for said in expected)


def test_a_plan_goes_on_without_the_hub_and_says_what_it_did_not_see(
    on_hub: Hub, tmp_path: Path
) -> None:
    on_hub.stop()
    checked = check_study(study(*TASKS), Store(tmp_path), for_plan=True)
    (note,) = checked.unchecked
    assert note.startswith(f"the hub cannot be reached ({on_hub.address}")
    assert note.endswith("published shapes and sizes are used instead")
    assert {encoder.layers for encoder in checked.inputs.encoders} == {12}
