"""Peak memory of whole processes: averaging at BERT-base's size, and every stage with ten times the
text.

Every measurement is a process of its own. Against a limit the whole process counts, libraries
included. Against a tenth of the text only memory of the process's own counts: pages of mapped files
are the kernel's, which takes them back. Ten times the text is the same rows ten times over, and the
tenth is worked on ten times, or for ten epochs: the C library's heap grows with the number of
batches, to a plateau, whatever the text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Row
from benchmarks.timing import Comparison, repeated

if TYPE_CHECKING:
    from benchmarks.setting import Setting

LIMIT_MB = 2000.0
ROWS = 120
LINES = 10_000
WINDOW = 64
"""Rows in a window of streamed features, here as in a corpus of any size."""


def averaged(inputs: int) -> None:
    """Average full-length random inputs at BERT-base's size, S=256, 2,048 tokens per batch."""
    import torch

    from benchmarks.setting import base_sized, full_batch
    from papa.attention.average import averaging
    from papa.encoders.encoder import Encoder

    slots, size = 256, 8
    encoder = Encoder(base_sized("eager"))
    with torch.inference_mode(), averaging(encoder, slots) as averager:
        for _ in range(inputs // size):
            encoder.observe(full_batch(size, slots))
        averager.result().average()


def text(rows: int, folder: Path) -> Setting:
    """The first rows of CoLA, over and over, tokenised."""
    from benchmarks.setting import described, setting, task_entry
    from papa.corpora.sources import read_source

    path = folder / f"{rows}-{os.getpid()}.jsonl"
    first = read_source(described(task_entry("cola")), "train").rows.slice(0, ROWS).to_pylist()
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in islice(cycle(first), rows))
    return setting("cola", rows, folder, file=path)


def on_text(stage: str, rows: int, folder: Path) -> None:
    """One stage on rows of CoLA, tokenised before."""
    import torch

    from benchmarks import stages
    from benchmarks.setting import encoder
    from papa.attention.constants import control
    from papa.probes import minibatches as order
    from papa.probes.evaluate import evaluate_cell
    from papa.ranking.learned import train_lambda
    from papa.spec import ExecutionSpec, FeaturesSpec, RankingSpec

    # The other size runs beside it.
    torch.set_num_threads(1)
    cola, times = text(rows, folder), 10 * ROWS // rows
    probe = cola.task.probe
    order.WINDOW_ROWS = WINDOW

    def score(epochs: int, budget: float) -> None:
        task = cola.task.model_copy(update={"probe": probe.model_copy(update={"epochs": epochs})})
        execution = ExecutionSpec(features_budget_gb=budget)
        options: dict[str, Any] = {
            "features": FeaturesSpec(),
            "execution": execution,
            "scratch": folder,
        }
        evaluate_cell(encoder(), cola.corpus, task, (0,), **options)

    match stage:
        case "averaging":
            for _ in range(times):
                stages.average(cola)
        case "probing, stored features":
            for _ in range(times):
                score(epochs=1, budget=20)
        case "probing, streamed features":
            score(epochs=times, budget=0)
        case "λ training":
            constants = control("toeplitz", encoder().layers, encoder().heads, cola.task.slots)
            train_lambda(encoder(), constants, cola.corpus, cola.task, RankingSpec(epochs=times))


STAGES = ("averaging", "λ training", "probing, stored features", "probing, streamed features")


@contextmanager
def own_memory() -> Iterator[Callable[[], float]]:
    """Inside the block, watch this process's own memory; yields what gives its peak in MB."""
    peak, over = _status("RssAnon"), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.003):
            peak = max(peak, _status("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: max(peak, _status("RssAnon"))
    finally:
        over.set()
        watcher.join()


def _status(name: str) -> float:
    """A line of this process's status in MB. ``ru_maxrss`` would not do: a process inherits its
    parent's.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def peak_of(stage: str, folder: Path, size: int) -> float:
    """The peak of a process of its own, in megabytes."""
    command = [sys.executable, "-m", "benchmarks.memory", stage, str(size), str(folder)]
    return float(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    )


def against_limit(folder: Path) -> Comparison:
    """A whole process that averages."""
    return repeated(lambda: (peak_of("whole process", folder, 32), LIMIT_MB), unit="MB")


def against_tenth(stage: str, folder: Path) -> Comparison:
    """A stage on ten times the text, side by side. What differs between equal runs is gaps in the
    heap.
    """
    size = LINES if stage == "tokenising" else ROWS

    def pair() -> tuple[float, float]:
        with ThreadPoolExecutor() as threads:
            large, small = threads.map(partial(peak_of, stage, folder), (10 * size, size))
        return large, small

    return repeated(pair, unit="MB")


def memory_rows(folder: Path) -> Iterator[Row]:
    """Peak megabytes against the limit, and against a tenth of the text."""
    yield Row(
        "memory", "memory of averaging, BERT-base size, S=256", 1.0, partial(against_limit, folder)
    )
    for stage in ("tokenising", *STAGES):
        name = f"memory with ten times the text, {stage}"
        yield Row("memory", name, 1 / 1.05, partial(against_tenth, stage, folder))


def _main(stage: str, size: int, folder: Path) -> float:
    if stage == "whole process":
        averaged(size)
        return _status("VmHWM")
    with own_memory() as peak:
        if stage == "tokenising":
            text(size, folder)
        else:
            on_text(stage, size, folder)
        return peak()


if __name__ == "__main__":
    print(_main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
