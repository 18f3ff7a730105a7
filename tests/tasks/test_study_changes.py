"""In which keys a study's file differs from what was run."""

from pathlib import Path

import pytest

from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.tasks.study_changes import differing_keys

TASK = {"name": "reviews", "slots": 32}
STUDY: dict[str, object] = {"name": "s", "encoders": ["org/encoder"], "tasks": [TASK]}


def study(changes: dict[str, object]) -> StudySpec:
    return resolve_study(STUDY | changes, folder=Path("/"), origin="test")


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"probe_seeds": [1]}, ["probe_seeds"]),
        ({"tasks": [TASK | {"slots": 64}]}, ["tasks.0.slots"]),
        ({"ranking": {"epochs": 2}, "orders": ["random"]}, ["orders.0", "ranking.epochs"]),
        ({"execution": {"workers": 7}}, []),
        ({"precision": "auto"}, []),
        ({"precision": "bfloat16"}, ["precision"]),
        ({"encoders": [{"name": "org/encoder", "revision": "v2"}]}, ["encoders.0.revision"]),
    ],
)
def test_keys_that_change_results_are_named(changes: dict[str, object], keys: list[str]) -> None:
    assert differing_keys(study(changes), study({})) == keys
