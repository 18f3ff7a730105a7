"""Steps that fail: mended by waiting, or told with everything else kept. Real failures, no
stand-ins.
"""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from papa.storage.store import Store
from tests.flows.conftest import (
    COMMAND,
    FEW,
    TINY,
    Finished,
    known,
    papa,
    rows_in,
    start,
    task_on,
    until,
    words,
    write_study,
)
from tests.flows.history import FlowRun, flow_runs, mlflow_states
from tests.flows.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.server

STUDY = TINY | {"orders": ["first_to_last"], "constants": ["identity"], "fractions": [1, 0]}
IMPATIENT = f"""
import flows.server
begin = flows.server.start_server

def wait_less(*arguments):
    started = begin(*arguments)
    import tasks.stage
    tasks.stage._RETRY_SECONDS[:] = [5, 0.5]
    return started

flows.server.start_server = wait_less
{COMMAND}"""
"""The command, which tries a step again after 5 seconds and then half a second, not 30."""
CELL = "probe · all-MiniLM-L6-v2 · reviews · identity · every head constant"
NUMBERS = CELL.replace("reviews", "numbers")
BASELINE = "baseline · all-MiniLM-L6-v2 · reviews"


@pytest.fixture(scope="module")
def broken_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "store"


@pytest.fixture(scope="module")
def broken(broken_store: Path, shallow: str, prefect: dict[str, str]) -> tuple[Finished, FlowRun]:
    """A study of two tasks, the probes of one of which leave all numbers behind, and two encoders,
    one of which has infinity among the queries of its last layer; and what Prefect recorded.
    """
    folder, poisoned = broken_store.parent, broken_store.parent / "poisoned"
    rows = [{"text": f"a text number {number}", "label": number % 2} for number in range(40)]
    probe = {"learning_rate": 1e30, "batch_size": 16, "epochs": 1}
    task = task_on("numbers", rows_in(folder, "numbers", rows), probe=probe)
    shutil.copytree(shallow, poisoned)
    weights = load_file(poisoned / "model.safetensors")
    weights["encoder.layer.1.attention.self.query.weight"][0, 0] = float("inf")
    save_file(weights, poisoned / "model.safetensors", metadata={"format": "pt"})
    study = known(
        write_study(folder, STUDY | {"encoders": [shallow, str(poisoned)], "tasks": [FEW, task]})
    )
    finished = papa("run", study, "--store", str(broken_store), more=prefect)
    (run,) = flow_runs(broken_store, prefect)
    return finished, run


def reasons(finished: Finished) -> dict[str, str]:
    """Why each step failed that did."""
    return dict(re.findall(r"^(.+): failed: (.+) \| study", finished.err, re.MULTILINE))


def test_failed_steps_are_named_and_others_are_kept(broken: tuple[Finished, FlowRun]) -> None:
    finished, run = broken
    why = reasons(finished)
    for stage in ("probe · all-MiniLM-L6-v2 · numbers · no constant head", NUMBERS):
        assert re.search("the loss of seed 0 is (nan|inf)", why[stage])
    name = words(finished)[-1].removeprefix("error: ").partition(" failed: ")[0]
    others = f"{len(why) - 1} more failed as well; finished cells are kept"
    assert words(finished)[-1] == f"error: {name} failed: {why[name]} ({others})"
    assert (finished.code, run.state) == (1, "Failed")
    assert run.message is not None
    assert run.message.endswith(f"{name} failed: {why[name]} ({others})")
    assert run.steps[CELL].state == "Completed"


def test_infinity_in_an_encoder_stops_the_cells_that_it_reaches(
    broken: tuple[Finished, FlowRun],
) -> None:
    """Where all heads are constant nobody computes the queries."""
    finished, run = broken
    reached = "probe · poisoned · reviews · no constant head"
    where = r"the output of layer 1 of row \d+, batch 1 of the train split"
    weights = r"weights encoder\.layer\.1\.attention\.self\.query\.weight"
    told = rf"{where} holds NaN or infinity: so do the encoder's {weights}: use other weights"
    assert re.fullmatch(told, reasons(finished)[reached])
    assert run.steps[reached].attempts == 1
    for kept in (CELL, BASELINE):
        assert run.steps[kept.replace("all-MiniLM-L6-v2", "poisoned")].state == "Completed"


def test_its_runs_in_mlflow_have_failed(
    broken: tuple[Finished, FlowRun], broken_store: Path
) -> None:
    assert mlflow_states(broken_store) == {"study": {"FAILED"}, "cell": {"FINISHED"}}


def block(store: Path, stage: str) -> Path:
    """A file where a stage's artifacts would lie in a store."""
    blocked = store / "artifacts" / stage
    blocked.parent.mkdir(parents=True, exist_ok=True)
    Store(store).make()
    blocked.touch()
    return blocked


def test_a_step_is_tried_again_and_told_after_its_last_attempt(
    shallow: str, tmp_path: Path, prefect: dict[str, str]
) -> None:
    """Probes, whose place in the store comes back, and a baseline, whose place does not."""
    store = tmp_path / "store"
    blocked, _ = block(store, "probe"), block(store, "baseline")
    study = known(write_study(tmp_path, STUDY | {"encoders": [shallow]}))
    command = ("run", study, "--store", str(store))
    with start(*command, more=prefect, program=IMPATIENT) as process:
        hanging = threading.Timer(PATIENCE_SECONDS, process.kill)
        hanging.start()
        try:
            told = until(process.stderr, f"{CELL}: will be tried again")
            blocked.unlink()
            assert process.stderr is not None
            told += process.stderr.read()
        finally:
            hanging.cancel()
    finished = Finished(process.returncode, "", told)
    assert finished.code == 1
    (run,) = flow_runs(store, prefect)
    assert (run.steps[CELL].state, run.steps[CELL].attempts) == ("Completed", 2)
    assert (run.state, run.steps[BASELINE].attempts) == ("Failed", 3)
    for step, times in ((CELL, 1), (BASELINE, 2)):
        assert told.count(f"{step}: will be tried again") == times
    (name,) = reasons(finished)
    error = f"{name} failed: {reasons(finished)[name]} (finished cells are kept)"
    assert (name, words(finished)[-1]) == (BASELINE, f"error: {error}"), "it alone failed"
    assert run.message is not None
    assert run.message.endswith(error)
    assert "Traceback" not in told
