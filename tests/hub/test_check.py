"""Studies that name encoders and datasets of the hub are looked at in one go, without downloading
what is large.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.check import check_study
from papa.corpora import preview
from papa.errors import CheckError
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from tests.hub.datasets import POS, ROWS
from tests.hub.server import Hub

BERT, DEBERTA = "google-bert/bert-base-uncased", "microsoft/deberta-base"
TASKS = ["cola", "sst2", "mrpc", "mnli", "ner", "pos", "mlm"]


@pytest.fixture
def all_public(public: Hub, encoder_folder: Callable[..., Path]) -> Hub:
    """The hub with the registry's datasets and two encoders."""
    for name in (BERT, DEBERTA):
        public.publish("models", name, encoder_folder(name))
    return public


def study(*tasks: Any, encoders: tuple[str, ...] = (BERT, DEBERTA)) -> StudySpec:
    slots = [
        {"name": task, "slots": 32} if isinstance(task, str) else {"slots": 32, **task}
        for task in tasks
    ]
    document = {
        "name": "study",
        "encoders": list(encoders),
        "tasks": slots,
        "execution": {"workers": 1},
    }
    return resolve_study(document, folder=Path(), origin="test")


def test_the_papers_tasks_are_ready(all_public: Hub, tmp_path: Path) -> None:
    checked = check_study(study(*TASKS), Store(tmp_path), fetch_weights=False)
    found = {task.name: look for task, look in checked.previews.items()}
    assert found["mnli"].label_names == ("entailment", "neutral", "contradiction")
    assert found["pos"].label_names == tuple(POS)
    assert found["mlm"].rows == (ROWS, ROWS // 2)
    assert all(one.unchecked is None for one in found.values())
    assert not any(file.endswith((".safetensors", ".bin")) for file in all_public.read())
    assert [note.partition(": ")[0] for note in checked.unchecked] == [
        f"encoders.0 ({BERT})",
        f"encoders.1 ({DEBERTA})",
    ]
    commits = [
        one.revision
        for one in (*checked.inputs.study.encoders, *(t.source for t in checked.inputs.study.tasks))
    ]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits)
    assert {encoder.layers for encoder in checked.inputs.encoders} == {2}


def test_large_files_are_looked_at_by_their_ends(
    all_public: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL_BYTES", 0)
    checked = check_study(study(*TASKS, encoders=(BERT,)), Store(tmp_path), fetch_weights=False)
    found = {task.name: look for task, look in checked.previews.items()}
    assert found["ner"].rows == (ROWS, ROWS)
    assert found["mlm"].rows == (2 * ROWS, ROWS)
    assert all("single labels" in one.unchecked for one in found.values())
    ranges = [
        request.range
        for request in all_public.requests
        if request.path.endswith(".parquet") and request.to_storage
    ]
    assert ranges
    assert None not in ranges


@pytest.mark.parametrize("small", [True, False])
def test_all_that_is_wrong_is_told(
    all_public: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(preview, "SMALL_BYTES", 0)
    glue = {"kind": "hub", "name": "nyu-mll/glue", "config": "cola"}
    wrong = study(
        "sst2",
        {"name": "cola", "columns": {"text": "sentense"}},
        {"name": "mrpc", "source": glue | {"config": "mprc"}},
        {"name": "mnli", "source": glue | {"config": "mnli", "validation": "validation"}},
        {"name": "rte", "source": glue | {"name": "nyu-mll/gleu"}},
        {
            "name": "ner",
            "source": {"kind": "hub", "name": "eriktks/conll2003", "config": "conll2003"},
        },
        {"name": "wnut17", "labels": ["O", "B-person", "I-person"]},
        {
            "name": "qqp",
            "source": glue | {"config": "mnli", "validation": "validation_matched"},
            "columns": {"text": "premise", "text_pair": "hypothesis"},
            "labels": None,
        },
        encoders=(BERT, "google-bert/bert-bsae-uncased"),
    )
    with pytest.raises(CheckError) as told:
        check_study(wrong, Store(tmp_path), for_plan=True, fetch_weights=False)
    for where, sentence in (
        ("encoders.1 (google-bert/bert-bsae-uncased): ", "is not on the hub, or it is private"),
        ("tasks.1 (cola): ", "no column 'sentense' (found: sentence, "),
        ("tasks.2 (mrpc): ", "has no configuration 'mprc' (found: mrpc, "),
        (
            "tasks.3 (mnli): ",
            "has no split 'validation' (found: validation_matched, validation_mismatched, ",
        ),
        ("tasks.4 (rte): ", "'nyu-mll/gleu' is not on the hub"),
        ("tasks.5 (ner): ", "is a script, and scripts never run"),
        ("tasks.6 (wnut17): ", "names the classes of 'ner_tags' O, B-corporation"),
        ("tasks.7 (qqp): ", "metric f1 needs two classes"),
    ):
        assert [sentence in one for one in told.value.problems if one.startswith(where)] == [
            True
        ], where
    assert len(told.value.problems) == 8


def test_a_plan_goes_on_without_the_hub_and_says_what_it_did_not_see(
    on_hub: Hub, tmp_path: Path
) -> None:
    on_hub.stop()
    checked = check_study(study(*TASKS), Store(tmp_path), for_plan=True)
    (note,) = checked.unchecked
    assert note.startswith(f"the hub cannot be reached ({on_hub.address}")
    assert note.endswith("published shapes and sizes are used instead")
    assert {encoder.layers for encoder in checked.inputs.encoders} == {12}
