"""Ctrl-C, SIGTERM and SIGHUP in every phase of a study. Kills are in ``tests/faults``."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from papa.flows.cli.lists import stored_studies
from papa.storage.locks import active_runs
from papa.storage.store import Store
from papa.tasks.manifest import open_study
from tests.finished import finish_study
from tests.flows import conftest as cli
from tests.flows.history import mlflow_states, own_flow_runs
from tests.flows.processes import PATIENCE_SECONDS, descendants, start_of
from tests.tasks.tracked import logged
from tests.workers.parts import folder_below

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)

PHASES = [
    ("average · all-MiniLM-L6-v2 · reviews: started", signal.SIGINT),
    ("train_lambda · all-MiniLM-L6-v2 · reviews: started", signal.SIGTERM),
    ("12 of 24 heads constant · seeds 0, 1: started", signal.SIGHUP),
]
COMPUTED = ("tokenise", "average", "train_lambda", "probe")


def interrupted(arguments: tuple[str, ...], line: str, number: int) -> cli.Finished:
    with cli.start(*arguments) as process:
        cli.until(process.stderr, line)
        children = {pid: start_of(pid) for pid in descendants(process.pid)}
        folder = folder_below(process.pid)
        os.kill(process.pid, number)
        ended = cli.finish(process)
    assert len(children) >= 3, "Prefect's server, Ray and its workers run below the command"
    left = [pid for pid, started in children.items() if started and start_of(pid) == started]
    assert not left, "every process below it ended with it"
    assert not folder.exists()
    return ended


@pytest.mark.slow
def test_stopped_in_every_phase_it_goes_on_to_the_same_scores(shallow: str, tmp_path: Path) -> None:
    few = {"encoders": [shallow], "orders": ["lambda"], "keep": [1, 0.5]}
    study = cli.write_study(tmp_path, cli.SMALL | few)
    store = tmp_path / "store"
    arguments = ("run", study, "--store", str(store))
    before: dict[str, int] = {}
    for line, number in PHASES:
        ended = interrupted(arguments, line, number)
        assert ended.code == 128 + number
        (sentence,) = [text for text in cli.words(ended) if text.startswith("interrupted")]
        resume_command = f"papa run {study} --store {store}"
        assert f"steps are kept in {store}; to go on run: {resume_command}" in sentence
        assert not re.search("failed|Traceback", ended.err)
        assert not active_runs(Store(store)), "nobody takes the store for used"
        (study_there,) = stored_studies(Store(store))
        assert study_there.state == "not finished"
        Store(store).study_path("small.failed").write_text("why a run failed before the next")
        # Where the machine was too busy for it within two seconds it stays so until the next run.
        assert mlflow_states(store)["study"] <= {"KILLED", "RUNNING"}
        now = cli.artifacts(store, *COMPUTED)
        assert now.items() >= before.items(), "finished steps are not repeated"
        before = now
    assert {name.partition("/")[0] for name in before} >= {"tokenise", "average", "train_lambda"}

    finished = cli.papa(*arguments)
    assert finished.code == 0, finished.err
    assert cli.artifacts(store, *COMPUTED).items() >= before.items()
    calm = tmp_path / "undisturbed"
    finish_study(study, calm)
    assert cli.artifacts(store, *COMPUTED).keys() == cli.artifacts(calm, *COMPUTED).keys()
    results, undisturbed = (open_study(Store(folder), "small").results for folder in (store, calm))
    assert results["score"].tolist() == undisturbed["score"].tolist()
    assert mlflow_states(store) == {key: {"FINISHED"} for key in ("study", "cell", "curve")}
    runs = logged(store, "small")
    assert runs["role"].value_counts()["study"] == 1, "it went on in its run"
    *stopped, last = own_flow_runs(store)
    assert last.state == "Completed"
    assert {run.state for run in stopped} <= {"Crashed", "Running"}


WAITING = """
import os, signal, subprocess, sys, time
from papa.flows.interrupt import Interruption

if sys.argv[1:]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
with Interruption() as interruption:
    interruption.on_interrupt.append(lambda: time.sleep(3600))
    print("ready", flush=True)
    {what}
"""
SLEEPING = "subprocess.Popen(['sleep', '3600']); time.sleep(3600)"
COMPUTING = "while True: sum(range(10**5))"
FAILING = "sys.stdin.readline(); raise SystemExit('failed meanwhile')"
GOING_ON = "sys.stdin.readline(); print('went on')"


@pytest.mark.parametrize(
    ("program", "ignored", "numbers", "code"),
    [
        (SLEEPING, [], [signal.SIGTERM], 143),
        (SLEEPING, [], [signal.SIGHUP], 129),
        (SLEEPING, [], [signal.SIGINT, signal.SIGINT], 130),
        (COMPUTING, [], [signal.SIGINT], 130),
        (FAILING, [], [signal.SIGINT], 130),
        (GOING_ON, ["ignored"], [signal.SIGINT], 0),
    ],
)
def test_whatever_the_command_does_it_ends_with_the_code_of_its_signal(
    program: str, ignored: list[str], numbers: list[int], code: int
) -> None:
    """What fails because processes are killed is not its failure; what is ignored stays so."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING.format(what=program), *ignored],
        env=cli.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        cli.until(process.stdout, "ready")
        for sent, number in enumerate(numbers):
            process.send_signal(number)
            if not sent and not ignored:
                cli.until(process.stderr, "interrupted")
        out, errors = process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, errors) == (code, "went on\n" if ignored else "", "")
