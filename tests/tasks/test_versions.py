"""In which keys a study's file differs from what was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.tasks.versions import differing_keys

TASK = {"name": "reviews", "slots": 32}
STUDY: dict[str, Any] = {"name": "s", "encoders": ["org/encoder"], "tasks": [TASK]}


def study(**changes: Any) -> StudySpec:
    return resolve_study(STUDY | changes, folder=Path("/"), origin="test")


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"probe_seeds": [1]}, ["probe_seeds"]),
        ({"tasks": [TASK | {"slots": 64}]}, ["tasks.0.slots"]),
        ({"tasks": [TASK, {"name": "cola"}]}, ["tasks"]),
        ({"ranking": {"epochs": 2}, "orders": ["random"]}, ["orders", "ranking.epochs"]),
        (
            {"substitutes": [{"kind": "local", "window": 3}]},
            ["substitutes.0.kind", "substitutes.0.window"],
        ),
        ({"execution": {"workers": 7}}, []),
        ({"precision": "auto"}, []),
        ({"precision": "bfloat16"}, ["precision"]),
        ({"encoders": [{"name": "org/encoder", "revision": "v2"}]}, ["encoders.0.revision"]),
    ],
)
def test_keys_that_change_results_are_named(changes: dict[str, Any], keys: list[str]) -> None:
    assert differing_keys(study(**changes), study()) == keys


def test_what_a_run_settled_does_not_count() -> None:
    commit = {"name": "org/encoder", "revision": "0123abc"}
    finished = study(encoders=[commit], precision="float32")
    assert differing_keys(study(precision="auto"), finished) == []


def test_scores_that_differ_are_named() -> None:
    ours, theirs = (
        study(orders=["scores:mine"], scores=[{"name": "mine", "values": [[value, 2.0]]}])
        for value in (1.0, 3.0)
    )
    assert differing_keys(ours, ours) == []
    assert differing_keys(ours, theirs) == ["scores (mine)"]
