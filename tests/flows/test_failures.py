"""Steps that fail: mended by waiting, or told with everything else kept. Real failures, no
stand-ins.
"""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from papa.study.store import mark
from tests.encoders.lower import lower_layers
from tests.flows.conftest import (
    COMMAND,
    FEW,
    TINY,
    Finished,
    papa,
    rows_in,
    start,
    task_on,
    until,
    words,
    write_study,
)
from tests.flows.history import FlowRun, flow_runs, logged, mlflow_states
from tests.flows.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.server

STUDY = TINY | {"orders": ["first_to_last"], "fractions": [1, 0]}
IMPATIENT = f"""
import flows.run
prepare = flows.run._import_for_later

def wait_less(*arguments):
    from tasks.perform import perform
    perform.retry_delay_seconds = [5, 0.5]
    prepare(*arguments)

flows.run._import_for_later = wait_less
{COMMAND}"""
"""The command, which tries a step again after 5 seconds and then half a second, not 30."""
CELL = "probe · all-MiniLM-L6-v2 · reviews · average · every head constant"


@pytest.fixture(scope="module")
def broken_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "store"


@pytest.fixture(scope="module")
def broken(broken_store: Path, prefect: dict[str, str]) -> tuple[Finished, FlowRun]:
    """A study of two tasks, the probes of one of which leave all numbers behind; and what Prefect
    recorded.
    """
    folder, store = broken_store.parent, broken_store
    rows = [{"text": f"a text number {number}", "label": number % 2} for number in range(40)]
    probe = {"learning_rate": 1e30, "batch_size": 16, "epochs": 1}
    task = task_on("numbers", rows_in(folder, "numbers", rows), probe=probe)
    study = write_study(folder, STUDY | {"tasks": [FEW, task]})
    finished = papa("run", study, "--store", str(store), more=prefect)
    (run,) = flow_runs(store, prefect["PREFECT_API_URL"])
    return finished, run


def test_a_failed_step_is_named_and_others_are_kept(broken: tuple[Finished, FlowRun]) -> None:
    finished, run = broken
    assert finished.code == 1
    sentence = words(finished)[-1]
    cell = r"(baseline|probe) · all-MiniLM-L6-v2 · numbers"
    failed = rf"{cell}.* failed: .*the loss of seed 0 is (nan|inf)"
    assert re.match(f"error: {failed}", sentence)
    assert run.state == "Failed"
    assert run.message is not None
    assert re.search(failed, run.message)
    assert run.steps[CELL].state == "Completed"


def test_its_runs_in_mlflow_have_failed(
    broken: tuple[Finished, FlowRun], broken_store: Path
) -> None:
    states = mlflow_states(broken_store)
    assert states["parent"] == {"FAILED"}
    assert {"FAILED", "FINISHED"} <= states["cell"] <= {"FAILED", "FINISHED", "KILLED"}


def test_what_the_user_has_to_mend_is_not_tried_again(broken: tuple[Finished, FlowRun]) -> None:
    finished, run = broken
    assert run.steps[CELL.replace("reviews", "numbers")].attempts == 1
    assert "tried again" not in finished.err


def block(store: Path) -> Path:
    """A file where a store's probes would lie."""
    blocked = store / "artifacts" / "probe"
    blocked.parent.mkdir(parents=True)
    mark(str(store))
    blocked.touch()
    return blocked


def test_a_step_whose_store_comes_back_is_tried_again(
    tmp_path: Path, prefect: dict[str, str]
) -> None:
    store = tmp_path / "store"
    blocked = block(store)
    command = ("run", write_study(tmp_path, STUDY), "--store", str(store))
    with start(*command, more=prefect, program=IMPATIENT) as process:
        hanging = threading.Timer(PATIENCE_SECONDS, process.kill)
        hanging.start()
        try:
            told = until(process.stderr, "will be tried again").splitlines()[-1]
            blocked.unlink()
            _, rest = process.communicate()
        finally:
            hanging.cancel()
    assert process.returncode == 0, rest
    assert told.startswith("probe · all-MiniLM-L6-v2 · reviews · ")
    (run,) = flow_runs(store, prefect["PREFECT_API_URL"])
    assert run.state == "Completed"
    assert run.steps[told.split(": ")[0]].attempts == 2


def test_a_step_that_keeps_failing_is_told_after_its_last_attempt(
    tmp_path: Path, prefect: dict[str, str]
) -> None:
    store = tmp_path / "store"
    block(store)
    command = ("run", write_study(tmp_path, STUDY), "--store", str(store))
    finished = papa(*command, more=prefect, program=IMPATIENT)
    assert finished.code == 1
    assert "probe · all-MiniLM-L6-v2 · reviews · " in words(finished)[-1]
    assert "Traceback" not in finished.err
    assert finished.err.count(f"{CELL}: will be tried again") == 2
    log = logged(store, prefect["PREFECT_API_URL"])
    errors = [text for task, level, text in log if task and level >= logging.ERROR]
    tracebacks = [text for text in errors if "Traceback" in text]
    assert tracebacks, log
    expected = "FileExistsError|NotADirectoryError"
    assert all(re.search(expected, text) for text in tracebacks), tracebacks
    progress = [message for task, _, message in log if task is None]
    for told in ("tokenise · all-MiniLM-L6-v2 · reviews: done in", f"{CELL}: failed: "):
        assert any(message.startswith(told) for message in progress)
    shown = [line for line in words(finished) if not line.startswith("error: ")]
    assert set(shown) <= set(progress) | {line for line in shown if line.startswith("MLflow: ")}


def test_infinity_in_an_encoder_stops_the_cells_that_it_reaches(
    tmp_path: Path, prefect: dict[str, str]
) -> None:
    """Queries of the last layer: where all heads are constant nobody computes them."""
    lower_layers(2, tmp_path / "poisoned")
    weights = load_file(tmp_path / "poisoned" / "model.safetensors")
    weights["encoder.layer.1.attention.self.query.weight"][0, 0] = float("inf")
    save_file(weights, tmp_path / "poisoned" / "model.safetensors", metadata={"format": "pt"})
    changed = {"encoders": [str(tmp_path / "poisoned")], "constants": ["identity"]}
    study, store = write_study(tmp_path, STUDY | changed), tmp_path / "store"
    finished = papa("run", study, "--store", str(store), more=prefect)
    (run,) = flow_runs(store, prefect["PREFECT_API_URL"])
    reached = "probe · poisoned · reviews · no constant head"
    assert run.message is not None
    where = r"the output of layer 1 of row \d+, batch 1 of the train split"
    weights = r"weights encoder\.layer\.1\.attention\.self\.query\.weight"
    assert re.search(
        rf"{reached} failed: {where} holds NaN or infinity: so do the encoder's {weights}: "
        r"use other weights \(finished cells are kept\)$",
        run.message,
    )
    assert finished.code == 1
    assert run.steps[reached].attempts == 1
    constant = "probe · poisoned · reviews · identity · every head constant"
    for kept in (constant, "baseline · poisoned · reviews"):
        assert run.steps[kept].state == "Completed"
