"""Large studies: what each further cell costs around its own work, with 64 workers that wait half a
second for a cell and a tenth of it for a shard.

``python -m benchmarks.scale`` runs studies of 100, 100 (the first warms up) and 2,000 cells.
Seconds of processors are those of the driver and of Prefect's server alone, so that other processes
count less. Steps, keys, artifacts, actors of Ray, Prefect and MLflow are the real ones. What trains
or runs an encoder for a cell and shard waits instead, and publishes an artifact of the right form;
one more process does the rest.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from safetensors.numpy import save_file

from papa.heads.sums import AttentionSums
from papa.models.reference import EMBEDDED
from papa.progress import ignore_progress
from papa.spec import StudySpec
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.tasks.cell import BASELINE, EXAMPLES, CellScores, ScoredSeed
from papa.tasks.context import Context
from papa.tasks.head_scores import LAMBDA
from papa.tasks.step import Step
from papa.workers import WorkerPool

TASKS = (1, 1, 20)
SHARDS = 26
WORKERS = 64
WAITS = {"probe": 0.5, "baseline": 0.5, "train_lambda": 0.5, "shard": 0.05}
"""Seconds of each stage, and of a shard of an average."""
WHOLE: dict[str, Any] = {
    "substitutes": ["average", "identity", "toeplitz", "zeros"],
    "orders": ["lambda", "reversed:lambda", "first_to_last", "last_to_first", "random"],
    "keep": [0.8, 0.6, 0.4, 0.2, 0.1],
    "probe_seeds": [0],
    "execution": {"shard_rows": 1},
}
ROWS = 32
"""Validation rows of each stand-in score."""


class StandIn:
    """A worker that waits; an actor once Ray wraps it."""

    def ready(self, shared: Path | None) -> None:
        """Do nothing: the worker can take a call at once."""

    def run(self, function: Any, arguments: dict[str, Any], model: Any) -> Any:
        """Run a call as ``Worker.run`` does."""
        store = arguments["store"]
        first = arguments["steps"][0]
        stage = first.stage.name
        if stage == "average":
            time.sleep(WAITS["shard"] * len(arguments["arguments"]["shards"]))
            shape = (
                first["encoder"].layers,
                first["encoder"].heads,
                first["slots"],
                first["slots"],
            )
            sums = AttentionSums(np.ones(shape), np.ones(shape[2:]))
            return sums, {"worker_seconds": WAITS["shard"], "device": "cpu"}
        time.sleep(WAITS[stage])
        for step in arguments["steps"]:
            context = Context((step,), store, arguments["execution"], ignore_progress)
            with context.published(seconds=WAITS[stage]) as folder:
                _write(step, folder, context.artifacts)
        return []


class StandInPool(WorkerPool):
    """A pool of stand-ins; what they do not do is computed in one more process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(WORKERS, "cpu", folder)
        self._others = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def run(self, function: Callable[..., Any], **given: Any) -> Any:
        """Run a call as ``Worker.run`` does."""
        arguments = given["arguments"]
        is_shard = "shards" in arguments.get("arguments", {})
        if is_shard or arguments["steps"][0].stage.name in WAITS:
            return super().run(function, **given)
        return self._others.submit(function, **arguments, progress=ignore_progress).result()

    def __exit__(self, *error: object) -> None:
        self._others.shutdown()
        super().__exit__(*error)

    def _new(self) -> Any:
        return self._ray.remote(StandIn).options(num_cpus=1).remote()


def _write(step: Step, folder: Path, found: Mapping[Step, Any]) -> None:
    """Write an artifact of the step's stage; scores follow from the step's key."""
    encoder = step["encoder"]
    numbers = random.Random(step.key)
    if step.stage.name == "train_lambda":
        shape = (encoder.layers, encoder.heads)
        lambdas = np.random.default_rng(0).random(shape, np.float32)
        save_file({"lambda": lambdas}, folder / LAMBDA)
        return
    shares = [numbers.randrange(ROWS // 2, ROWS) / ROWS for _ in step["seeds"]]
    seeds = tuple(map(ScoredSeed, step["seeds"], shares, [1.0] * len(shares)))
    if step.stage.name == "probe":
        heads = step["heads"].constant_heads(found)
        scores = CellScores(seeds, None, 0.0, heads)
        scores.save(folder, _correct(shares))
        return
    answer = {"always_one_answer": {"score": 0.5, "answer": "negative"}}
    document = {**answer, "word_embeddings": [asdict(seed) for seed in seeds]}
    (folder / BASELINE).write_text(json.dumps(document))
    examples = {"always_one_answer": _correct([0.5])[0], "word_embeddings": _correct(shares)}
    save_file(examples, folder / EXAMPLES)


def _correct(scores: Sequence[float]) -> np.ndarray:
    """Return what each validation row adds to accuracies, [seeds, rows, 2]."""
    correct = np.stack([np.arange(ROWS) < score * ROWS for score in scores])
    return np.stack([correct, np.ones_like(correct)], -1).astype(np.float64)


def study(numbers: Sequence[int], folder: Path) -> StudySpec:
    """Return a study of 100 cells for each of some tasks, whose text has many shards."""
    task = {"base": "reviews", "slots": 16, "train_rows": SHARDS, "validation_rows": ROWS}
    tasks = [{"name": f"reviews-{number}", "sample_seed": number, **task} for number in numbers]
    document = {"name": f"tasks-from-{numbers[0]}", "encoders": [EMBEDDED], "tasks": tasks, **WHOLE}
    return resolve_study(document, folder=folder, origin="benchmarks")


def run(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the studies, and yield what each cost."""
    # Not at the top, as every stand-in would import it.
    from papa.flows.check import check_study
    from papa.flows.environment import prepare_engines

    store = Store(folder / "store")
    store.make()
    prepare_engines(store.root, verbose=False)
    from papa.flows.server import PrefectServer

    prefect_server = PrefectServer(PREFECT__SERVER_EPHEMERAL="1", PREFECT_UI_ENABLED="0")
    assert prefect_server.use_unless_named(), (
        "Prefect's settings name a server: unset PREFECT_API_URL"
    )
    with StandInPool(folder) as pool:
        pool.begin().result()
        prefect_server.wait(print)
        from papa.flows import study as of_study
        from papa.flows.progress import StudyProgress

        server = psutil.Process(prefect_server.process.pid)
        first = 0
        for count in TASKS:
            checked = check_study(study(range(first, first + count), folder), store)
            first += count
            progress = StudyProgress(len(checked.pipeline.steps))
            prepared = of_study.PreparedRun(checked, store, progress, pool)
            of_study.prepared_run.set(prepared)
            before = (cpu(psutil.Process()), cpu(server))
            started = time.monotonic()
            of_study.run_study(study="none.yaml", return_state=True)
            clock = time.monotonic() - started
            cells = sum(len(part.cells) for part in checked.pipeline.pairs)
            probes = (Path(store.artifacts) / "probe").glob("*/metadata.json")
            texts = (Path(store.artifacts) / "tokenise").glob("*/metadata.json")
            ended = [max(one.stat().st_mtime for one in files) for files in (texts, probes)]
            yield {
                "cells": cells,
                "clock s": clock,
                "cells ended, s after the last text": ended[1] - ended[0],
                "driver CPU s per cell": (cpu(psutil.Process()) - before[0]) / cells,
                "Prefect CPU s per cell": (cpu(server) - before[1]) / cells,
                "driver MB": psutil.Process().memory_info().rss / 1e6,
            }


def cpu(process: psutil.Process) -> float:
    """Seconds of processors that a process used."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for found in run(Path(folder)):
            print(json.dumps(found), flush=True)
