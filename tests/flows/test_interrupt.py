"""Ctrl-C and SIGTERM in every phase of a study, and SIGKILL: no process left, a sentence where one
can be, and it goes on where it was to the same scores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from flows.check import check_study
from papa.processes import start_of
from papa.spec.file import load_study
from papa.storage.store import Store, claimed
from tests.finished import finish_study
from tests.flows.conftest import SMALL, artifacts, environment, papa, start, until, write_study
from tests.flows.history import mlflow_states, own_flow_runs
from tests.flows.processes import (
    PATIENCE_SECONDS,
    descendants,
    is_loopback,
    listening,
    wait_until,
)

pytestmark = pytest.mark.server

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc to watch processes", allow_module_level=True)


PHASES = [
    ("average · all-MiniLM-L6-v2 · reviews: started", signal.SIGINT),
    ("rank · all-MiniLM-L6-v2 · reviews: started", signal.SIGTERM),
    ("16 of 72 heads constant: started", signal.SIGINT),
]
COMPUTED = ("tokenise", "average", "rank", "probe")


def interrupted(arguments: tuple[str, ...], line: str, number: int) -> tuple[int, str]:
    """Send a signal when a line appears; the exit code and what was printed from then on. No
    process is left.
    """
    with start(*arguments) as process:
        until(process.stderr, line)
        children = {pid: start_of(pid) for pid in descendants(process.pid)}
        os.kill(process.pid, number)
        said = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert len(children) >= 3, "Prefect's server, Ray and its workers run below the command"
    left = [pid for pid, started in children.items() if started and start_of(pid) == started]
    assert not left, "every process below it ended with it"
    return process.returncode, said


def workers_below(root: int) -> list[int]:
    return [pid for pid, command in descendants(root).items() if "ray::Worker" in command]


def kill(arguments: tuple[str, ...], study: str, store: Path) -> None:
    """Kill a study that has its average, both workers and a run in MLflow, and waits for its λ; all
    that it started but Ray's agents ends by itself.
    """
    steps = check_study(load_study(Path(study)), Store(store)).steps.steps
    (rank,) = (step for step in steps if step.stage == "rank")
    with (
        claimed(Store(store), f"{rank.stage}-{rank.key}"),
        start(*arguments, "--workers", "2") as process,
    ):
        try:
            until(process.stderr, f"{rank.name}: waits for another run")
            wait_until(
                lambda: len(workers_below(process.pid)) == 2,
                PATIENCE_SECONDS,
                "both workers are up",
            )
            wait_until(
                lambda: "RUNNING" in mlflow_states(store)["study"],
                PATIENCE_SECONDS,
                "MLflow shows the study",
            )
            assert process.poll() is None
            children = {
                pid: (start_of(pid), command) for pid, command in descendants(process.pid).items()
            }
            addresses = listening({process.pid, *children})
        finally:
            os.kill(process.pid, signal.SIGKILL)
        # Ends only when nobody holds the pipes any more.
        process.communicate(timeout=PATIENCE_SECONDS)
    assert len(addresses) >= 1, "Prefect and Ray listen somewhere"
    assert all(is_loopback(address) for address in addresses), addresses
    # Ray's two agents, which do no work, take up to two minutes to notice.
    names = ("ray::Worker", "raylet/raylet", "gcs_server")
    rays = {
        pid: started
        for pid, (started, command) in children.items()
        if any(name in command for name in names)
    }
    servers = {
        pid: started for pid, (started, command) in children.items() if "create_app" in command
    }
    assert len(rays) >= 4
    assert servers
    wait_until(
        lambda: all(start_of(pid) != started for pid, started in (rays | servers).items()),
        PATIENCE_SECONDS,
        "Prefect's server, Ray's servers and workers end by themselves",
    )


def test_stopped_in_every_phase_it_goes_on_to_the_same_scores(tmp_path: Path) -> None:
    study = write_study(tmp_path, SMALL | {"orders": ["lambda"], "fractions": [1, 56 / 72]})
    store = tmp_path / "store"
    arguments, killed = ("run", study, "--store", str(store)), set[Path]()

    def stop(line: str, number: int) -> None:
        code, said = interrupted(arguments, line, number)
        assert code == 128 + number
        sentence = next(text for text in said.splitlines() if text.startswith("interrupted"))
        again = f"papa run {study} --store {store}"
        assert f"steps are kept in {store}; to go on run: {again}" in sentence
        assert "failed" not in said
        assert "Traceback" not in said
        assert set((store / "runs").iterdir()) == killed, "nobody takes the store for used"
        # Where the machine was too busy for it within two seconds it stays so until the next run.
        assert mlflow_states(store)["study"] <= {"KILLED", "RUNNING"}

    first, *others = PHASES
    stop(*first)
    kill(arguments, study, store)
    killed |= set((store / "runs").iterdir())
    before = artifacts(store, *COMPUTED)
    assert {name.split("/")[0] for name in before} >= {"tokenise", "average"}
    assert mlflow_states(store)["study"] == {"RUNNING"}, "nobody was left to end it"
    for phase in others:
        stop(*phase)

    finished = papa(*arguments)
    assert finished.code == 0, finished.err
    assert artifacts(store, *COMPUTED).items() >= before.items(), "finished steps are not repeated"
    other = tmp_path / "undisturbed"
    finish_study(study, other)
    assert artifacts(store, *COMPUTED).keys() == artifacts(other, *COMPUTED).keys()
    results = Path("studies") / "small" / "results.parquet"
    scores, undisturbed = (pandas.read_parquet(place / results) for place in (store, other))
    assert scores["score"].tolist() == undisturbed["score"].tolist()
    assert mlflow_states(store) == {key: {"FINISHED"} for key in ("study", "cell", "curve")}
    runs = own_flow_runs(store)
    assert runs[-1].state == "Completed"
    assert {run.state for run in runs[:-1]} <= {"Crashed", "Running"}


WAITING = """
import sys, time
from flows.interrupt import Interruption

with Interruption() as interruption:
    interruption.calls.append(lambda: time.sleep(3600))
    print("ready", flush=True)
    {what}
"""
SLEEPING = "import subprocess; subprocess.Popen(['sleep', '3600']); time.sleep(3600)"
COMPUTING = "while True: sum(range(10**5))"
FAILING = "sys.stdin.readline(); raise SystemExit('failed meanwhile')"


@pytest.mark.parametrize(
    ("what", "numbers", "code"),
    [
        (SLEEPING, [signal.SIGTERM], 143),
        (SLEEPING, [signal.SIGINT, signal.SIGINT], 130),
        (COMPUTING, [signal.SIGINT], 130),
        (FAILING, [signal.SIGINT], 130),
    ],
)
def test_whatever_the_command_does_it_ends_with_the_code_of_its_signal(
    what: str, numbers: list[int], code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING.format(what=what)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(numbers[0])
        assert process.stderr.readline().startswith("interrupted, ending (once more: at once): ")
        for number in numbers[1:]:
            process.send_signal(number)
        # What fails because processes are being killed is not the command's failure.
        out, said = process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert process.returncode == code
    assert out == ""
    assert said == ""


def test_an_ignored_signal_stays_ignored() -> None:
    code = (
        "import os, signal\n"
        "from flows.interrupt import Interruption\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with Interruption():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN\n"
        "print('went on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
