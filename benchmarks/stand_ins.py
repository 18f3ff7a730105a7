"""Workers that wait as long as the real ones compute: for the cost of everything around the work,
at any scale.

Steps, keys, artifacts, actors of Ray, Prefect and MLflow are the real ones. What trains or runs an
encoder for a cell and shard waits instead, and publishes an artifact of the right form; one more
process does the rest.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from papa.progress import ignore_progress
from papa.storage.artifacts import ArtifactReference
from papa.study.stages.probe import BASELINE, EXAMPLES, ProbeScores, ScoredSeed
from papa.study.stages.rank import LAMBDA
from papa.study.step import Context, Step
from papa.workers import WorkerPool

Found = Mapping[Step, ArtifactReference]
ROWS = 32
"""Validation rows of each stand-in score."""


class StandIn:
    """A worker that waits so many seconds by stage, or for a "shard" of an average; an actor once
    Ray wraps it.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def ready(self, shared: Path | None) -> None:
        """Nothing, as soon as the worker can take a call."""

    def run(self, function: Any, arguments: dict[str, Any], encoder: Any) -> Any:
        """As ``Worker.run``."""
        step, store = arguments["step"], arguments["store"]
        if "shards" not in arguments:
            time.sleep(self._seconds[step.stage])
            run = Context(step, store, arguments["execution"], ignore_progress)
            with run.published(seconds=self._seconds[step.stage]) as folder:
                _WRITERS[step.stage](step, folder, run.found)
        else:
            time.sleep(self._seconds["shard"] * len(arguments["shards"]))
            encoder, slots = step["encoder"], step["slots"]
            shape = (encoder.layers, encoder.heads, slots, slots)
            spent = {"worker_seconds": self._seconds["shard"], "device": "cpu"}
            return np.ones(shape), np.ones(shape[2:]), spent
        return []


class StandInPool(WorkerPool):
    """A pool of stand-ins; what they do not do is computed in one more process."""

    def __init__(self, stand_ins: int, seconds: Mapping[str, float], folder: Path) -> None:
        super().__init__(stand_ins, "cpu", folder)
        # Where workers find stand-ins.
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        self._seconds = seconds
        self._others = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def run(self, function: Callable[..., Any], **given: Any) -> Any:
        """As of ``WorkerPool``."""
        arguments = given["arguments"]
        waits = "step" in arguments and arguments["step"].stage in (*_WRITERS, "average")
        return (
            super().run(function, **given)
            if waits
            else self._others.submit(computed, function, arguments).result()
        )

    def __exit__(self, *error: object) -> None:
        self._others.shutdown()
        super().__exit__(*error)

    def _new(self) -> Any:
        return self._ray.remote(StandIn).options(num_cpus=1).remote(self._seconds)


def computed(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call it in this process."""
    return function(**arguments, progress=ignore_progress)


def _write_probe(step: Step, folder: Path, found: Found) -> None:
    encoder, seeds = step["encoder"], _scores(step)
    heads = step["heads"].chosen(found)
    scores = ProbeScores(seeds, None, 0.0, heads, encoder.layers * encoder.heads)
    scores.save(folder, _correct([seed.score for seed in seeds]))


def _write_baseline(step: Step, folder: Path, found: Found) -> None:
    document = {"always_one_answer": {"score": 0.5, "answer": "negative"}}
    seeds = _scores(step)
    (folder / BASELINE).write_text(
        json.dumps({**document, "word_embeddings": [asdict(seed) for seed in seeds]})
    )
    words = _correct([seed.score for seed in seeds])
    save_file(
        {"always_one_answer": _correct([0.5])[0], "word_embeddings": words}, folder / EXAMPLES
    )


def _write_ranking(step: Step, folder: Path, found: Found) -> None:
    encoder = step["encoder"]
    lambdas = np.random.default_rng(0).random((2, encoder.layers, encoder.heads), np.float32)
    save_file({"lambda": lambdas[-1].copy(), "lambda_by_epoch": lambdas}, folder / LAMBDA)


def _correct(scores: Sequence[float]) -> np.ndarray:
    """What each validation row adds to accuracies, [seeds, rows, 2]."""
    correct = np.stack([np.arange(ROWS) < score * ROWS for score in scores])
    return np.stack([correct, np.ones_like(correct)], -1).astype(np.float64)


def _scores(step: Step) -> tuple[ScoredSeed, ...]:
    """A score of each seed that follows from the step's key."""
    numbers = random.Random(step.key)
    return tuple(
        ScoredSeed(seed, numbers.randrange(ROWS // 2, ROWS) / ROWS, 1.0) for seed in step["seeds"]
    )


_WRITERS: dict[str, Callable[[Any, Path, Found], None]] = {
    "probe": _write_probe,
    "baseline": _write_baseline,
    "rank": _write_ranking,
}
