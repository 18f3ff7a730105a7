"""Steps that fail: mended by waiting, or told with everything else kept. Real failures, no
stand-ins.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from papa.storage.store import Store
from tests.flows import conftest
from tests.flows.conftest import COMMAND, TINY, Finished, known, papa, start, words, write_study
from tests.flows.history import flow_runs, mlflow_states

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


def reasons(finished: Finished) -> dict[str, str]:
    """Why each step failed that did."""
    return dict(re.findall(r"^(.+): failed: (.+) \| study", finished.err, re.MULTILINE))


def test_failed_steps_are_named_and_others_are_kept(
    tmp_path: Path, shallow: str, prefect: dict[str, str]
) -> None:
    """Two tasks, the probes of one of which leave all numbers behind, and two encoders, one of
    which has infinity among the queries of its last layer: where all heads are constant nobody
    computes them.
    """
    rows = [{"text": f"a text number {number}", "label": number % 2} for number in range(40)]
    probe = {"learning_rate": 1e30, "batch_size": 16, "epochs": 1}
    source = conftest.rows_in(tmp_path, "numbers", rows)
    task = conftest.task_on("numbers", source, probe=probe)
    poisoned, store = Path(shutil.copytree(shallow, tmp_path / "poisoned")), tmp_path / "store"
    weights = load_file(poisoned / "model.safetensors")
    weights["encoder.layer.1.attention.self.query.weight"][0, 0] = float("inf")
    save_file(weights, poisoned / "model.safetensors", metadata={"format": "pt"})
    both = {"encoders": [shallow, str(poisoned)], "tasks": [conftest.FEW, task]}
    study = known(write_study(tmp_path, STUDY | both))
    finished = papa("run", study, "--store", str(store), more=prefect)
    (run,) = flow_runs(store, prefect)
    why = reasons(finished)
    for stage in ("probe · all-MiniLM-L6-v2 · numbers · no constant head", NUMBERS):
        assert re.search("the loss of seed 0 is (nan|inf)", why[stage])
    name = words(finished)[-1].removeprefix("error: ").partition(" failed: ")[0]
    told = f"{name} failed: {why[name]} ({len(why) - 1} more failed as well; finished cells are"
    assert words(finished)[-1] == f"error: {told} kept)"
    assert (finished.code, run.state) == (1, "Failed")
    assert str(run.message).endswith(f"{told} kept)")
    assert f"failed: {name} failed: " in conftest.said("list", "--store", str(store)).out

    reached = "probe · poisoned · reviews · no constant head"
    where = r"the output of layer 1 of row \d+, batch 1 of the train split"
    named = r"weights encoder\.layer\.1\.attention\.self\.query\.weight"
    sentence = rf"{where} holds NaN or infinity: so do the encoder's {named}: use other weights"
    assert re.fullmatch(sentence, why[reached])
    assert run.attempts[reached] == 1
    for kept in (CELL, *(one.replace("all-MiniLM-L6-v2", "poisoned") for one in (CELL, BASELINE))):
        assert run.steps[kept] == "Completed"
    assert mlflow_states(store) == {"study": {"FAILED"}, "cell": {"FINISHED"}}


def test_a_step_is_tried_again_and_told_after_its_last_attempt(
    shallow: str, tmp_path: Path, prefect: dict[str, str]
) -> None:
    """Probes, whose place in the store comes back, and a baseline, whose place does not."""
    store = tmp_path / "store"
    blocked = store / "artifacts" / "probe"
    blocked.parent.mkdir(parents=True)
    Store(store).make()
    for place in (blocked, blocked.with_name("baseline")):
        place.touch()
    study = known(write_study(tmp_path, STUDY | {"encoders": [shallow]}))
    with start("run", study, "--store", str(store), more=prefect, program=IMPATIENT) as process:
        told = conftest.until(process.stderr, f"{CELL}: will be tried again")
        blocked.unlink()
        finished = conftest.finish(process, told)
    assert finished.code == 1
    (run,) = flow_runs(store, prefect)
    assert (run.steps[CELL], run.attempts[CELL]) == ("Completed", 2)
    assert (run.state, run.attempts[BASELINE]) == ("Failed", 3)
    for step, times in ((CELL, 1), (BASELINE, 2)):
        assert finished.err.count(f"{step}: will be tried again") == times
    (name,) = reasons(finished)
    error = f"{name} failed: {reasons(finished)[name]} (finished cells are kept)"
    assert (name, words(finished)[-1]) == (BASELINE, f"error: {error}"), "it alone failed"
    assert str(run.message).endswith(error)
    assert "Traceback" not in finished.err
