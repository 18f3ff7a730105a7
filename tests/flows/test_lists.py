"""``papa list``, ``plan`` and ``check`` for programs: JSON, states, sizes and times."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.server
def test_sizes_are_those_of_du(tiny: tuple[str, Path]) -> None:
    _, store = tiny
    (study,) = printed_json("list", "--store", str(store))
    artifacts = [*(store / "artifacts").glob("*/*")]
    command = ["du", "--summarize", "--block-size=1", *artifacts]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert study["bytes"] == sum(int(line.split()[0]) for line in done.stdout.splitlines())


@pytest.mark.parametrize(("name", "state"), [("small", "running"), ("small-2", "finished")])
def test_only_a_study_that_runs_is_running(tiny: tuple[str, Path], name: str, state: str) -> None:
    store = Store(tiny[1])
    with in_use(store, name):
        (running,) = stored_studies(store)
    (ended,) = stored_studies(store)
    assert (running.state, ended.state) == (state, "finished")


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


def test_plan_says_why_it_has_no_times(tiny: tuple[str, Path], tmp_path: Path) -> None:
    study, store = tiny
    for address, has_times in ((store, True), (tmp_path / "new", False)):
        finished = invoke("plan", study, "--store", str(address), "--set", "probe_seeds=[7]")
        assert finished.code == 0, finished.err
        assert ("No times" in finished.out) != has_times


def test_check_as_json_has_encoders_and_tasks(tiny: tuple[str, Path]) -> None:
    study, store = tiny
    document = printed_json("check", study, "--store", str(store))
    (task,) = document["tasks"]
    assert (task["name"], task["train_rows"], task["validation_rows"]) == ("reviews", 32, 24)
    (encoder,) = document["encoders"]
    assert encoder["heads"] > 0
    assert document["steps_to_run"] == 0
    assert document["problems"] == []


def test_check_as_json_has_each_problem(tiny: tuple[str, Path], tmp_path: Path) -> None:
    study, store = tiny
    missing = [str(tmp_path / name) for name in ("first", "second")]
    changes = ("--set", f"encoders=[{', '.join(missing)}]")
    finished = invoke("check", study, "--store", str(store), *changes, "--json")
    assert finished.code == 1
    problems = json.loads(finished.out)["problems"]
    assert len(problems) == len(missing)
    assert all(name in problem for name, problem in zip(missing, problems, strict=True))


def test_check_names_faults_of_the_file_and_what_else_is_wrong(
    tiny: tuple[str, Path], tmp_path: Path
) -> None:
    study, store = tiny
    missing = str(tmp_path / "missing")
    settings = (f"encoders=[{missing}]", "keap=[1]", "orders=[lamda]", "tasks.0.columns.label=null")
    changes = [argument for setting in settings for argument in ("--set", setting)]
    for command in ("check", "plan", "run"):
        finished = invoke(command, study, "--store", str(store), *changes)
        assert finished.code == 1
        lines = finished.err.splitlines()
        expected = {
            "keap": "keep",
            "encoders.0": missing,
            "orders.0": "lambda",
            "columns.label": "text",
        }
        for key, named in expected.items():
            assert any(key in line and named in line for line in lines)


def test_check_as_json_has_a_file_that_is_no_study(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("name: [")
    finished = invoke("check", str(study), "--json")
    assert finished.code == 1
    (problem,) = json.loads(finished.out)["problems"]
    assert str(study) in problem
