"""A study's life: begun, hurt, begun again until it is complete; and what has to hold of it in the
end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas
from filelock import FileLock

from flows.cli.prune import prune
from papa.storage.files import MARK
from papa.storage.store import Store
from papa.storage.unused import survey
from tests.faults.points import NAMED, NODE, SERVER, WORKER, Fault, Seen
from tests.faults.services import Revived, environment_of
from tests.flows.conftest import artifacts, start
from tests.flows.processes import PATIENCE_SECONDS

LIFE = "PAPA_TESTS_LIFE"
"""In the environment of a study and all that it starts: whose life a process belongs to."""
KEPT = ("tokenise", "average", "rank", "baseline", "probe")
_LOOK_SECONDS = 0.005
_PARTS = {"worker": WORKER, "node": NODE, "GCS": "gcs_server", "Prefect": SERVER}
MISSED = "not reached, nothing was killed"
_ENDED = re.compile(r"(error|interrupted)")


@dataclass(frozen=True)
class Struck:
    """A fault that took place, and what became of the command that it hurt."""

    fault: str
    victim: str
    outcome: str


@dataclass
class Life:
    """A study, run again and again.

    Attributes:
        study: its file.
        address: its store.
        more: for its environment.
        servers: what may be killed beside it, by name.
        struck: the faults that took place.
        log: the lines of all its runs.
    """

    study: str
    address: str
    more: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, Revived] = field(default_factory=dict)
    struck: list[Struck] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.store = Store(self.address)
        self._made: dict[str, int] = {}

    def live(self, faults: Iterable[Fault], runs: int = 12) -> None:
        """Run the study to its end, through ``faults`` that come one after the other."""
        left = deque(faults)
        for _ in range(runs):
            if self.run(left) == 0:
                self.struck += [Struck(str(one), one.victim, MISSED) for one in left]
                return
        raise AssertionError(f"not complete after {runs} runs: {self.log[-30:]}")

    def once(self, meanwhile: Callable[[Seen, subprocess.Popen[str]], None]) -> int:
        """Run the study; what happens ``meanwhile`` is called again and again. Returns its exit
        code.
        """
        lines: list[str] = []
        with start(
            "run", self.study, "--store", self.address, more={**self.more, LIFE: self.name}
        ) as process:
            output, errors = process.stdout, process.stderr
            assert output is not None
            assert errors is not None
            readers = [
                threading.Thread(target=lambda: lines.extend(errors)),
                threading.Thread(target=output.read),
            ]
            for reader in readers:
                reader.start()
            seen, deadline = (
                Seen(process.pid, lines, self.store.root),
                time.monotonic() + PATIENCE_SECONDS,
            )
            while process.poll() is None:
                meanwhile(seen, process)
                assert time.monotonic() < deadline, lines
                time.sleep(_LOOK_SECONDS)
            # They end when nobody holds the pipes any more.
            for reader in readers:
                reader.join(PATIENCE_SECONDS)
        self.log += lines
        self._check_run(process.returncode, lines)
        return process.returncode

    def run(self, left: deque[Fault]) -> int:
        """Run the study; the faults that strike it are taken from ``left``. Returns its
        exit code.
        """
        hurt: list[Fault] = []

        def strike(seen: Seen, process: subprocess.Popen[str]) -> None:
            ending = hurt and hurt[-1].victim == "driver"
            if (
                left
                and not ending
                and NAMED[left[0].point].reached(seen)
                and self._kill(left[0].victim, seen, process)
            ):
                hurt.append(left.popleft())

        code = self.once(strike)
        # The command went on to where the next one struck.
        outcomes = ["the study went on"] * len(hurt)
        if hurt and code:
            outcomes[-1] = (
                "killed, run again" if code == -signal.SIGKILL else "ended in a sentence, run again"
            )
        self.struck += [
            Struck(str(one), one.victim, outcome)
            for one, outcome in zip(hurt, outcomes, strict=True)
        ]
        if not hurt:
            assert code == 0, f"it failed although nothing was hurt: {self.log[-30:]}"
        return code

    def _kill(self, victim: str, seen: Seen, process: subprocess.Popen[str]) -> bool:
        """Whether there was a victim."""
        if victim in self.servers:
            self.servers[victim].kill()
            return True
        pids = [process.pid] if victim == "driver" else seen.below(_PARTS[victim])
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def _check_run(self, code: int, lines: list[str]) -> None:
        """It is complete, was killed, or says one sentence; and what was finished is as it was."""
        text = "".join(lines)
        assert "Traceback" not in text, text
        said = [line for line in lines if _ENDED.match(line)]
        assert len(said) == (code not in (0, -signal.SIGKILL)), text
        now = artifacts(self.store.root, *KEPT)
        assert now.items() >= self._made.items(), "a finished step was computed again"
        self._made = now

    def check(self, undisturbed: pandas.DataFrame) -> None:
        """Its results are the undisturbed ones, no finished cell was computed twice, and nothing
        lies about.
        """
        found = pandas.read_parquet(self.store.study("small") / "results.parquet").drop(
            columns="seconds"
        )
        pandas.testing.assert_frame_equal(found, undisturbed)
        done: set[str] = set()
        for line in self.log:
            name, _, what = line.partition(": ")
            if what.startswith("started") and name.startswith(KEPT):
                assert name not in done, f"{name} was computed twice"
            elif what.startswith("done"):
                done.add(name)
        for lock in self.store.locks.glob("*.lock"):
            with FileLock(lock, timeout=0):
                pass
        # Leftovers of the killed have names that are known as such.
        prune(self.store.address, delete=True)
        assert survey(self.store) == []
        left = [
            path for path in self.store.root.rglob("*") if re.search(rf"\.{MARK}(\.|$)", path.name)
        ]
        assert not left, left
        assert not list(self.store.scratch.iterdir())
        assert not list(self.store.files.find("runs"))

    def processes(self) -> list[int]:
        """What still runs of it, or of what it started."""
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if environment_of(pid).get(LIFE) == self.name]


Live = Callable[..., Life]
"""The fixture ``live``."""
