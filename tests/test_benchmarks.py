"""The benchmarks' estimator beside simulated neighbours, and what is kept of a run."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import benchmarks.rows
from benchmarks import __main__ as bench
from benchmarks import document
from benchmarks.rows import LeftOut, Measured, Row
from benchmarks.timing import (
    Comparison,
    Part,
    compared,
    in_turn,
    of_least,
    of_pairs,
    seconds,
)

RATIO = 4.8
TARGETS = (4.3, 5.3)
MACHINES = [
    (0.3, 1.5, 0.3),
    (0.3, 3.0, 0.3),
    (0.3, 3.0, 20.0),
    (0.6, 1.5, 3.0),
    (0.6, 3.0, 3.0),
    (0.6, 3.0, 20.0),
]
"""Share of time that the neighbour is busy, how much slower work is meanwhile, and its bursts' mean
seconds.
"""
RESTLESS = [(0.9, 3.0, 0.3), (0.9, 3.0, 3.0), (0.97, 4.0, 1.0)]
SEEDS = 30


class SimulatedMachine:
    """A machine with a clock of its own and a neighbour that is busy in bursts; work also varies by
    1 % by itself.
    """

    def __init__(self, seed: int, busy: float, slower: float, burst: float) -> None:
        self._random = random.Random(seed)
        self._slower = slower
        self._lengths = {True: burst, False: burst * (1 - busy) / busy}
        self._busy = self._random.random() < busy
        self.now = 0.0
        self._change = self._drawn()

    def _drawn(self) -> float:
        return self.now + self._random.expovariate(1 / self._lengths[self._busy])

    def clock(self) -> float:
        return self.now

    def work(self, quiet_seconds: float) -> Callable[[], None]:
        """Work that takes this long on the quiet machine."""

        def run() -> None:
            left = quiet_seconds * (1 + self._random.expovariate(100))
            while left > 0:
                rate = 1 / self._slower if self._busy else 1.0
                step = min(left / rate, self._change - self.now)
                left, self.now = left - step * rate, self.now + step
                if self.now >= self._change:
                    self._busy = not self._busy
                    self._change = self._drawn()

        return run


def verdicts(measured: Callable[[SimulatedMachine], Comparison]) -> dict[str, float]:
    """The share of verdicts that are wrong, right and undecided, over all machines, seeds and
    targets.
    """
    counts = {"wrong": 0, "right": 0, "undecided": 0}
    for machine, seed in itertools.product(MACHINES, range(SEEDS)):
        found = measured(SimulatedMachine(seed, *machine))
        for target, right in zip(TARGETS, ("reached", "missed"), strict=True):
            verdict = Measured(**vars(found), target=target).verdict
            counts[
                verdict if verdict == "undecided" else "right" if verdict == right else "wrong"
            ] += 1
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def test_bursts_of_a_neighbour_change_no_verdict() -> None:
    def measured(machine: SimulatedMachine) -> Comparison:
        return in_turn(
            machine.work(0.5), Part(machine.work(0.6), RATIO * 0.5 / 0.6), clock=machine.clock
        )

    found = verdicts(measured)
    assert found["wrong"] < 0.005
    assert found["undecided"] < 0.15


def test_the_median_of_three_is_fooled() -> None:
    """Negative control: what the benchmarks went by before."""

    def measured(machine: SimulatedMachine) -> Comparison:
        ours, plain = machine.work(0.5), machine.work(RATIO * 0.5)
        ours(), plain()
        pairs = [(seconds(ours, machine.clock), seconds(plain, machine.clock)) for _ in range(3)]
        median = statistics.median(plainly / spent for spent, plainly in pairs)
        return Comparison(1.0, median, median, median, median, 3)

    assert verdicts(measured)["wrong"] > 0.1


def test_where_neighbours_never_rest_the_interval_of_pairs_holds_the_ratio() -> None:
    def missed(ratio: Callable[..., Any]) -> float:
        """The share of intervals without the true ratio of 1.2."""
        misses = 0
        for seed, machine in itertools.product(range(SEEDS), RESTLESS):
            simulated = SimulatedMachine(seed, *machine)
            ours, plain = simulated.work(0.05), Part(simulated.work(0.06))
            found = in_turn(ours, plain, ratio=ratio, clock=simulated.clock, patience=3.0)
            misses += not found.low <= 1.2 <= found.high
        return misses / (SEEDS * len(RESTLESS))

    assert missed(of_pairs) < 0.08
    assert missed(of_least) > 0.12, "negative control"


@pytest.mark.parametrize("times", [1, 2], ids=["three pairs", "six pairs"])
def test_the_interval_holds_the_ratio_and_widens_with_noise(times: int) -> None:
    steady = compared([(1.0, 5.0), (1.01, 5.05), (1.0, 5.01)] * times)
    assert steady.low <= steady.ratio == 5.0 <= steady.high
    noisy = compared([(1.0, 5.0), (1.5, 5.05), (1.6, 8.0)] * times)
    assert noisy.low <= noisy.ratio == 5.0 <= noisy.high
    assert noisy.high - noisy.low > 10 * (steady.high - steady.low)


def a_row(name: str, group: str = "λ", ratio: float = 2.0, *, on_request: bool = False) -> Row:
    return Row(group, name, 1.5, lambda: compared([(1.0, ratio)] * 3), on_request)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page and an empty record in place of the repository's own."""
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- rows -->\nold\n<!-- /rows -->\nAfter.\n")
    monkeypatch.setattr(document, "PAGE", page)
    monkeypatch.setattr(document, "RECORD", tmp_path / "latest.json")
    monkeypatch.setattr(benchmarks.rows, "SIZE", 16)
    return page


def test_a_partial_run_replaces_its_rows_alone(page: Path) -> None:
    names = ["first", "second"]
    assert bench.run([a_row("second"), a_row("first"), a_row("gone")], [*names, "gone"]) == 0
    before = document.known()
    assert list(before) == ["first", "second", "gone"]
    assert bench.run([a_row("second", ratio=3.0)], names) == 0
    after = document.known()
    assert list(after) == names
    assert after["first"] == before["first"]
    assert after["second"].ratio == 3.0
    assert after["second"].torch in page.read_text()
    lines = page.read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines if " | " in line] == [
        "| work",
        "| ---",
        "| first",
        "| second",
    ]
    assert lines[0] == "Before."
    assert lines[-1] == "After."


def test_a_row_that_fails_is_one_sentence_and_the_others_go_on(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise subprocess.CalledProcessError(1, "papa", stderr=b"Traceback\nerror: no such study\n")

    def leave_out() -> None:
        raise LeftOut("this CPU has no bfloat16")

    rows = [Row("a", "fails", 1, fail), Row("a", "cannot", 1, leave_out), a_row("works")]  # type: ignore[arg-type]
    assert bench.run(rows, [row.name for row in rows]) == 1
    said = capsys.readouterr().out
    assert "failed: CalledProcessError: error: no such study\n" in said
    assert "left out: this CPU has no bfloat16\n" in said
    assert "3 of 3, about 1 min left: works" in said
    assert list(document.known()) == ["works"]
