"""A study's life: begun, hurt at points that are seen from outside, begun again until it ends."""

import os
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import psutil
from filelock import FileLock

from papa.flows.cli.prune import prune
from papa.storage.locks import active_runs
from papa.storage.store import Store
from papa.storage.unused import find_unused
from tests.flows.conftest import artifacts, start
from tests.flows.processes import PATIENCE_SECONDS, answers, descendants, wait_until

LIFE = "PAPA_TESTS_LIFE"
"""In the environment of a study and all that it starts: whose life a process belongs to."""
KEPT = ("tokenise", "average", "train_lambda", "baseline", "probe")
PARTS = {
    "Prefect": "papa.flows.serve",
    "GCS": "gcs_server",
    "node": "raylet/raylet",
    "worker": "ray::Worker",
}
"""What is hurt of a study, by a part of its command line; and ``driver``, the study itself."""
_LOOK_SECONDS = 0.005


class Seen(NamedTuple):
    """A running study: its process, what it wrote to its error stream, its store's folder."""

    pid: int
    lines: Sequence[str]
    store: Path

    def below(self, process_name: str) -> list[int]:
        part = PARTS[process_name]
        return [pid for pid, command in descendants(self.pid).items() if part in command]

    def has_reached(self, point: str) -> bool:
        """Whether it has come as far as one of ``POINTS``; a step that an earlier run finished is
        beyond.
        """
        if point == "an average is stored":
            return any((self.store / "artifacts").glob("average/*/*"))
        name, _, event = point.partition(" ")
        if event == "is up":
            return bool(self.below(name))
        pattern = re.compile(rf"{name} · .*: ({event}|already there)")
        return any(map(pattern.match, self.lines))


POINTS = (
    *("Prefect is up", "GCS is up", "worker is up", "tokenise started", "average started"),
    *("an average is stored", "average done", "train_lambda started", "train_lambda done"),
    *("baseline started", "probe started", "probe done", "aggregate started", "aggregate done"),
)
"""Points in a study's life that are seen from outside, in the order in which they come."""


def scores(store: Store) -> pandas.DataFrame:
    results = pandas.read_parquet(store.study_path("small") / "results.parquet")
    return results.drop(columns="seconds")


class Fault(NamedTuple):
    victim: str
    point: str


def draw(seed: int, victims: Sequence[str], points: Sequence[str] = POINTS) -> list[Fault]:
    """Return a fault for each victim at a point drawn by ``seed``, in the order of points."""
    source = random.Random(seed)
    first = dict.fromkeys(("worker", "node", "GCS"), POINTS.index("worker is up"))
    faults = []
    for victim in victims:
        later = [point for point in points if POINTS.index(point) >= first.get(victim, 0)]
        faults.append(Fault(victim, source.choice(later)))
    return sorted(faults, key=lambda fault: POINTS.index(fault.point))


class Revived:
    """A server beside a study: when it is killed, another one like it takes its place."""

    def __init__(
        self, process: subprocess.Popen[str] | subprocess.Popen[bytes], health: str
    ) -> None:
        self.process = process
        self.health = health

    def kill(self) -> None:
        known = psutil.Process(self.process.pid)
        environment = known.environ()
        folder = known.cwd()
        self.end()
        self.process = subprocess.Popen(
            self.process.args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )

    def end(self) -> None:
        known = psutil.Process(self.process.pid)
        for descendant in (known, *known.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                descendant.kill()
        self.process.wait()


@dataclass
class Life:
    """A study run again and again, the faults that struck it and their outcomes, and all lines."""

    study: str
    address: str
    more: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, Revived] = field(default_factory=dict)
    struck: list[tuple[Fault, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.store = Store(self.address)
        # A short path, as those of Ray's sockets are limited.
        self.temporary = Path(tempfile.mkdtemp(prefix="life-", dir="/tmp"))
        self._made: dict[str, int] = {}

    def live(self, faults: Iterable[Fault], runs: int = 12) -> None:
        """Run the study to its end, through ``faults`` that come one after the other."""
        left = deque(faults)
        known = [fault.health for fault in self.servers.values()]
        for _ in range(runs):
            wait_until(lambda: all(map(answers, known)), "servers are up")
            if self._run(left) == 0:
                self.struck += [(fault, "not reached, nothing was killed") for fault in left]
                return
        raise AssertionError(f"not complete after {runs} runs: {self.log[-30:]}")

    def once(self, meanwhile: Callable[[Seen], None]) -> int:
        """Run the study, and call what happens ``meanwhile`` again and again; its exit code."""
        lines: list[str] = []
        run_environment = {**self.more, LIFE: self.name, "TMPDIR": str(self.temporary)}
        with start(
            "run", self.study, "--store", self.address, extra_environment=run_environment
        ) as process:
            output: Any = process.stdout
            errors: Any = process.stderr
            targets = partial(lines.extend, errors), output.read
            readers = [threading.Thread(target=target) for target in targets]
            for reader in readers:
                reader.start()
            observed = Seen(process.pid, lines, self.store.root)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while process.poll() is None:
                meanwhile(observed)
                assert time.monotonic() < deadline, lines
                time.sleep(_LOOK_SECONDS)
            # They end when nobody holds the pipes any more.
            for reader in readers:
                reader.join(PATIENCE_SECONDS)
        wait_until(lambda: not self.leftovers(), "its processes and folders are gone")
        self.log += lines
        text = "".join(lines)
        code = process.returncode
        assert "Traceback" not in text, text
        ended = [line for line in lines if line.startswith(("error", "interrupted"))]
        assert len(ended) == (code not in (0, -signal.SIGKILL)), text
        now = artifacts(self.store.root, *KEPT)
        assert now.items() >= self._made.items(), "a finished step was computed again"
        self._made = now
        return code

    def _run(self, left: deque[Fault]) -> int:
        """Run the study; the faults that strike it are taken from ``left``. Its exit code."""
        hurt: list[Fault] = []

        def strike(observed: Seen) -> None:
            ending = hurt and hurt[-1].victim == "driver"
            reached = left and not ending and observed.has_reached(left[0].point)
            if reached and self._kill(left[0].victim, observed):
                hurt.append(left.popleft())

        code = self.once(strike)
        # The command went on to where the next one struck.
        outcomes = ["the study went on"] * len(hurt)
        if hurt and code:
            killed = code == -signal.SIGKILL
            outcomes[-1] = f"{'killed' if killed else 'ended in a sentence'}, run again"
        self.struck += zip(hurt, outcomes, strict=True)
        assert hurt or code == 0, f"it failed although nothing was hurt: {self.log[-30:]}"
        return code

    def _kill(self, victim: str, observed: Seen) -> bool:
        if victim in self.servers:
            self.servers[victim].kill()
            return True
        pids = [observed.pid] if victim == "driver" else observed.below(victim)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def check(self, undisturbed: pandas.DataFrame) -> None:
        """Results are undisturbed, no finished cell was computed twice, and nothing lies about."""
        pandas.testing.assert_frame_equal(scores(self.store), undisturbed)
        done: set[str] = set()
        for line in self.log:
            name, _, event = line.partition(": ")
            if event.startswith("started") and name.startswith(KEPT):
                assert name not in done, f"{name} was computed twice"
            elif event.startswith("done"):
                done.add(name)
        for lock in self.store.locks.glob("*.lock"):
            with FileLock(lock, timeout=0):
                pass
        # Leftovers of the killed have names that are known as such.
        prune(self.store.address, delete=True)
        assert find_unused(self.store) == []
        names = [path.name for path in self.store.root.rglob("*")]
        assert not [name for name in names if re.search(r"\.\d+\.[0-9a-f]{8}(\.|$)", name)]
        assert not list(self.store.scratch.iterdir())
        assert not active_runs(self.store)

    def leftovers(self) -> list[object]:
        """The processes and temporary folders of its commands."""
        return [*self.processes(), *self.temporary.glob("papa-*")]

    def processes(self) -> list[int]:
        lives = {
            process.pid: (process.info["environ"] or {}).get(LIFE)
            for process in psutil.process_iter(["environ"])
        }
        return [pid for pid, name in lives.items() if name == self.name]
