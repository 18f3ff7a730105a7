"""Steps that fail: mended by waiting, or told with everything else kept. Real failures, no stand-ins."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from flows.inputs import check_inputs
from papa.progress import silent
from papa.spec import ExecutionSpec, StudySpec
from papa.spec.file import load_study
from tasks.step import compute_step
from tasks.store import Store, mark
from tasks.tokenise import Tokenise
from tests.flows.conftest import SMALL, Finished, papa, start, words, write_study
from tests.flows.history import FlowRun, flow_runs
from tests.flows.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.server

TINY = SMALL | {"orders": ["first_to_last"], "fractions": [1, 0], "seeds": [0]}
CELL = "probe · all-MiniLM-L6-v2 · reviews · average · every head constant"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, prefect: dict[str, str]) -> tuple[Finished, FlowRun]:
    """A study of two tasks, the tokenised text of one damaged in the store; and what Prefect recorded."""
    folder = tmp_path_factory.mktemp("broken")
    rows = [json.dumps({"text": f"a text number {number}", "label": number % 2}) for number in range(40)]
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    task = {
        "name": "damaged",
        "kind": "text",
        "source": {"kind": "files", "train": "train.jsonl", "validation": "validation.jsonl"},
        "columns": {"text": "text", "label": "label"},
        "metric": "accuracy",
        "slots": 32,
        "probe": {"learning_rate": 5e-4, "batch_size": 16, "epochs": 1},
    }
    study, store = write_study(folder, TINY | {"tasks": [*SMALL["tasks"], task]}), folder / "store"
    damage(tokenised(load_study(Path(study)), store) / "train-00000.arrow")
    finished = papa("run", study, "--store", str(store), more=prefect)
    (run,) = flow_runs(store, prefect["PREFECT_API_URL"])
    return finished, run


def tokenised(study: StudySpec, store: Path) -> Path:
    """The tokenised text of the study's last task, as a run would leave it."""
    inputs, task = check_inputs(study), study.tasks[-1]
    (encoder,) = inputs.encoders
    step = Tokenise("", 0.0, encoder, task, study.layout, inputs.fingerprint(task))
    compute_step(step=step, store=Store(store), execution=ExecutionSpec(), progress=silent)
    return Path(step.folder(Store(store)))


def damage(file: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_failed_step_is_named_and_others_are_kept(broken: tuple[Finished, FlowRun]) -> None:
    finished, run = broken
    assert finished.code == 1
    sentence = words(finished)[-1]
    failed = r"(average|probe) · all-MiniLM-L6-v2 · damaged.* failed: .*train-00000\.arrow is damaged"
    assert re.match(f"error: {failed}", sentence)
    assert run.state == "Failed"
    assert run.message is not None
    assert re.search(failed, run.message)
    assert run.steps[CELL].state == "Completed"


def test_what_the_user_has_to_mend_is_not_tried_again(broken: tuple[Finished, FlowRun]) -> None:
    finished, run = broken
    assert run.steps["average · all-MiniLM-L6-v2 · damaged"].attempts == 1
    assert "tried again" not in finished.err


def test_a_step_whose_store_comes_back_is_tried_again(tmp_path: Path, prefect: dict[str, str]) -> None:
    store = tmp_path / "store"
    blocked = store / "artifacts" / "probe"
    blocked.parent.mkdir(parents=True)
    mark(str(store))
    blocked.touch()
    with start("run", write_study(tmp_path, TINY), "--store", str(store), more=prefect) as process:
        hanging = threading.Timer(PATIENCE_SECONDS, process.kill)
        hanging.start()
        try:
            assert process.stderr is not None
            told = next((line for line in process.stderr if "will be tried again" in line), "")
            blocked.unlink()
            rest = process.stderr.read()
            process.wait()
        finally:
            hanging.cancel()
    assert process.returncode == 0, rest
    assert told.startswith("probe · all-MiniLM-L6-v2 · reviews · ")
    (run,) = flow_runs(store, prefect["PREFECT_API_URL"])
    assert run.state == "Completed"
    assert run.steps[told.split(": ")[0]].attempts == 2


def test_a_step_that_keeps_failing_is_told_after_its_last_attempt(tmp_path: Path, prefect: dict[str, str]) -> None:
    store = tmp_path / "store"
    (store / "artifacts").mkdir(parents=True)
    mark(str(store))
    (store / "artifacts" / "probe").touch()
    finished = papa("run", write_study(tmp_path, TINY), "--store", str(store), more=prefect)
    assert finished.code == 1
    assert "probe · all-MiniLM-L6-v2 · reviews · " in words(finished)[-1]
    assert "Traceback" not in finished.err
    assert finished.err.count(f"{CELL}: will be tried again") == 2
