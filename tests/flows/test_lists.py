"""``papa list``, ``plan`` and ``check`` for programs: JSON, states, sizes and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from papa.flows.cli.lists import stored_studies
from papa.storage.locks import in_use
from papa.storage.store import Store
from tests.flows.conftest import invoke


def printed_json(*arguments: str) -> Any:
    finished = invoke(*arguments, "--json")
    assert finished.code == 0, finished.err
    return json.loads(finished.out)


def test_list_as_json_has_what_the_table_has(tiny: tuple[str, Path]) -> None:
    _, store = tiny
    (study,) = printed_json("list", "--store", str(store))
    assert (study["name"], study["state"], study["reason"]) == ("small", "finished", "")
    assert study["tasks"] == ["reviews"]
    assert Path(study["report"]).is_file()
    assert study["bytes"] > 0


def test_a_study_that_runs_is_running(tiny: tuple[str, Path]) -> None:
    _, store = tiny
    with in_use(Store(store), "small"):
        (running,) = stored_studies(Store(store))
    (ended,) = stored_studies(Store(store))
    assert (running.state, ended.state) == ("running", "finished")


def test_another_study_that_runs_changes_no_state(tiny: tuple[str, Path]) -> None:
    _, store = tiny
    with in_use(Store(store), "small-2"):
        (study,) = stored_studies(Store(store))
    assert study.state == "finished"


def test_plan_as_json_has_every_step(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    plan = printed_json("plan", study, "--store", str(store))
    assert plan["study"] == "small"
    assert all(step["cached"] for step in plan["steps"])
    longer = printed_json("plan", study, "--store", str(store), "--set", "name=longer")
    assert len(longer["steps"]) == len(plan["steps"])


def test_plan_as_json_says_how_long_a_missing_step_takes(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    plan = printed_json("plan", study, "--store", str(store), "--set", "probe_seeds=[7]")
    missing = [step for step in plan["steps"] if not step["cached"]]
    assert missing
    assert all(step["seconds"] > 0 for step in missing)


def test_check_as_json_has_encoders_and_tasks(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    document = printed_json("check", study, "--store", str(store))
    (task,) = document["tasks"]
    assert (task["name"], task["train_rows"], task["validation_rows"]) == ("reviews", 32, 24)
    (encoder,) = document["encoders"]
    assert encoder["heads"] > 0
    assert document["steps_to_run"] == 0
