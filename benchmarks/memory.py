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

from benchmarks.timing import Pair, Row, repeated

LIMIT_MB = 2000.0
ROWS = 120
LINES = 10_000
WINDOW = 64
"""Rows in a window of streamed features, here as in a corpus of any size."""


def averaged(inputs: int) -> None:
    """Average full-length random inputs at BERT-base's size, S=256, 2,048 tokens per batch."""
    import torch

    from benchmarks.setting import base_sized, full_batch
    from papa.heads.average import AttentionAverager
    from papa.models.encoder import Encoder

    encoder = Encoder(base_sized("eager"))
    averager = AttentionAverager(encoder.layers, encoder.heads, 256)
    with torch.inference_mode():
        encoder.observe(averager.observe, (full_batch(8, 256) for _ in range(inputs // 8)))
        averager.substitute()


def on_text(stage: str, rows: int, folder: Path) -> None:
    """Run one stage on the first rows of CoLA, over and over."""
    import torch

    from benchmarks import stages
    from benchmarks.setting import described, encoder, setting, task_entry
    from papa.heads.constants import control
    from papa.probes import features
    from papa.text.sources import read_source

    # The other size runs beside it.
    torch.set_num_threads(1)
    path = folder / f"{rows}-{os.getpid()}.jsonl"
    times = 10 * ROWS // rows
    first = read_source(described(task_entry("cola")), "train").rows.slice(0, ROWS).to_pylist()
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in islice(cycle(first), rows))
    source = {"kind": "files", "train": str(path), "validation": str(path)}
    cola = setting("cola", folder, train_rows=rows, source=source, labels=None)
    features.WINDOW_ROWS = WINDOW
    probe = partial(stages.probing, cola, folder, seeds=(0,))
    for _ in range(times):
        if stage == "averaging":
            stages.average(cola)
        elif stage == "probing, stored features":
            probe(epochs=1)
    if stage == "probing, streamed features":
        probe(epochs=times, budget=0)
    if stage == "λ training":
        constants = control("toeplitz", encoder().layers, encoder().heads, cola.task.slots)
        stages.ranking(cola, constants, epochs=times)


STAGES = (
    "tokenising",
    "averaging",
    "λ training",
    "probing, stored features",
    "probing, streamed features",
)


@contextmanager
def own_memory() -> Iterator[Callable[[], float]]:
    """Watch this process's own memory while the block runs; yields what gives its peak in MB."""
    peak = _status("RssAnon")
    over = threading.Event()

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
    """Return a line of this process's status in MB. ``ru_maxrss`` would not do: a process inherits
    its parent's.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def peak_of(stage: str, folder: Path, size: int) -> float:
    """Return the peak of a process of its own, in megabytes."""
    command = [sys.executable, "-m", "benchmarks.memory", stage, str(size), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def memory_rows(folder: Path) -> Iterator[Row]:
    """Peak megabytes against the limit; and with ten times the text against a tenth of it, side by
    side: what differs between equal runs is gaps in the heap.
    """

    def whole() -> tuple[float, float]:
        return peak_of("whole process", folder, 32), LIMIT_MB

    def tenth(stage: str) -> tuple[float, float]:
        size = LINES if stage == "tokenising" else ROWS
        with ThreadPoolExecutor() as threads:
            large, small = threads.map(partial(peak_of, stage, folder), (10 * size, size))
        return large, small

    pairs: dict[str, Pair] = {"of averaging, BERT-base size, S=256": whole}
    pairs |= {f"with ten times the text, {stage}": partial(tenth, stage) for stage in STAGES}
    for name, pair in pairs.items():
        yield Row("memory", f"memory {name}", partial(repeated, pair, "MB"))


if __name__ == "__main__":
    stage = sys.argv[1]
    size = int(sys.argv[2])
    place = Path(sys.argv[3])
    if stage == "whole process":
        averaged(size)
        print(_status("VmHWM"))
    else:
        with own_memory() as peak:
            on_text(stage, size, place)
            print(peak())
