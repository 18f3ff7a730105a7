"""About how much work each stage is: operations from shapes and sizes, seconds from the rates of a
store's finished artifacts, else from a share of the device's rate in a matrix product.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papa.corpora.corpus import RowTokens
from papa.corpora.sources import known_size
from papa.encoders.reference import EncoderReference
from papa.spec import (
    FeaturesSpec,
    FilesSource,
    HubSource,
    Precision,
    RankingSpec,
    StudySpec,
    TaskSpec,
)
from papa.spec.methods import HEAD_SCORES, VALUED_ROWS
from papa.study.step import worker_clock
from papa.study.store import Store

CORE = 1e11
"""Floating point operations per second of one core in a matrix product, where nothing
was measured.
"""
SHARES = {
    "average": 0.63,
    "rank": 0.6,
    "scores": 0.5,
    "frozen_probe": 0.63,
    "probe": 0.63,
    "baseline": 0.3,
}
"""The share of a core's rate in a matrix product that a worker reached
(``python -m benchmarks.plans``).
"""
_TOKENISING = 5e-6 * CORE
"""Operations of a core for each token."""
AGGREGATING, TRACKING = 0.005 * CORE, 0.04 * CORE
"""Of the driver's for each row of the results: to read and show it, and to log it to MLflow
(docs/performance.md, Scale).
"""
SUBMITTING = 0.05
"""Seconds of the driver for each step."""
_VALUE_BYTES = {"float32": 4, "bfloat16": 2}
_PART_TOKENS = 256
_STEP = 400
"""Operations of a matrix product that take as long as an optimiser's step of one value, which waits
for memory.
"""
_VOCABULARY = 30_000
_LABELLED = {"words": 0.7, "mlm": 0.15, "causal": 1.0}
"""The share of tokens that have a label, where they were not counted."""
_TOKENS_OF_SLOTS = {"pair": (0.45, 80), "mlm": (0.6, 160), "causal": (0.6, 160)}
"""The share of slots that a text's tokens take, and how many they are at most."""
_HUB_ROWS = {"train": 10_000, "validation": 1_000}
_BYTES_PER_ROW = {"parquet": 60, "conll": 200}


@dataclass(frozen=True)
class Size:
    """About how much text a task has: rows, tokens of a row, and those with a label."""

    train: int
    validation: int
    tokens: float
    labelled: float


def size_of(
    task: TaskSpec, counted: tuple[int, int] | None = None, tokens: RowTokens | None = None
) -> Size:
    """A task's size."""
    rows = counted or [
        min(limit or most, most)
        for limit, most in (
            (task.train_rows, _rows(task, "train")),
            (task.validation_rows, _rows(task, "validation")),
        )
    ]
    known = known_size(task.source) if isinstance(task.source, HubSource) else None
    if tokens:
        mean = tokens.all
    elif known:
        mean = min(known["tokens"], task.slots)
    else:
        share, most = _TOKENS_OF_SLOTS.get(task.kind, (0.4, 28))
        mean = min(share * task.slots, most)
    labelled = mean * _LABELLED.get(task.kind, 0.0)
    if tokens and tokens.labelled is not None:
        labelled = tokens.labelled
    return Size(rows[0], rows[1], mean, labelled)


def _rows(task: TaskSpec, split: str) -> int:
    match task.source:
        case FilesSource() as source:
            path = source.train if split == "train" else source.validation
            format = source.format or path.suffix.lstrip(".")
            bytes_per_row = _BYTES_PER_ROW.get(format)
            if bytes_per_row:
                return max(1, path.stat().st_size // bytes_per_row)
            with path.open("rb") as file:
                return max(
                    1, sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
                )
        case HubSource() as source:
            return (known_size(source) or _HUB_ROWS)[split]
        case _:
            return {"train": 7_500, "validation": 1_000}[split]


def tokenising_flops(size: Size) -> float:
    """In operations of a core, so that every stage has the same unit."""
    return (size.train + size.validation) * size.tokens * _TOKENISING


def feature_bytes(encoder: EncoderReference, size: Size, features: FeaturesSpec) -> float:
    """What one cell's features take on the disk."""
    values = (size.train + size.validation) * size.tokens * (encoder.layers + 1) * encoder.width
    return values * _VALUE_BYTES[features.dtype]


@dataclass(frozen=True)
class Work:
    """About how many operations the steps of one encoder on one task take."""

    encoder: EncoderReference
    size: Size
    task: TaskSpec

    def averaging(self) -> float:
        """One pass over the training text."""
        return self._forward(self.size.train)

    def answering(self) -> float:
        """One pass over the validation text, of a model with its own head."""
        return self._forward(self.size.validation)

    def ranking(self, ranking: RankingSpec) -> float:
        """Forward and backward passes over the training text, for each epoch; training may stop
        before the last.
        """
        rows = min(ranking.rows or self.size.train, self.size.train)
        epoch = 3 * self._forward(rows) + self._optimising(self.encoder.layers + 1, rows)
        return ranking.epochs_on(self.task) * epoch

    def ranking_parts(self) -> int:
        """How many workers have a part of a minibatch of λ's training to do, on CPUs
        (``papa/study/rank.py``).
        """
        return max(1, round(self.task.probe.batch_size * self.size.tokens / _PART_TOKENS))

    def scoring(self, ranking: RankingSpec, method: str) -> float:
        """The passes that a method of ``HEAD_SCORES`` takes over the rows that heads are scored on.
        What is trained for epochs costs what λ does.

        Sets of heads differ from the one before in one head, drawn alike from all layers, and
        layers below it are not computed again; those of a model with its own head are.
        """
        scoring, layers = HEAD_SCORES[method], self.encoder.layers
        if "epochs" in scoring.reads:
            return self.ranking(ranking)
        rows, times = ranking.rows or self.size.train, scoring.passes
        if scoring.evaluations:
            times = scoring.evaluations(layers * self.encoder.heads, ranking.evaluations)
            rows = ranking.rows or VALUED_ROWS
            if self.task.head == "probe":
                times *= (layers + 1) / (2 * layers)
        return times * self._forward(min(rows, self.size.train))

    def scoring_parts(self, ranking: RankingSpec) -> int:
        """How many workers have a batch of the rows to do on which sets of heads are valued, on
        CPUs (``papa/ranking/value.py``).
        """
        tokens = min(ranking.rows or VALUED_ROWS, self.size.train) * self.size.tokens
        part = _PART_TOKENS if self.task.head == "own" else 2 * _PART_TOKENS
        return max(1, round(tokens / part))

    def frozen_probe(self) -> float:
        """A pass over the training text, and every epoch of one probe."""
        return self.averaging() + self.task.probe.epochs * self._training(self.encoder.layers + 1)

    def probing(self, study: StudySpec, seeds: int) -> float:
        """The passes for the features, one, or beyond the budget one per epoch, and every epoch of
        every seed's probe.
        """
        size, epochs = self.size, self.task.probe.epochs
        budget = study.execution.features_budget_gb * 1e9
        streamed = feature_bytes(self.encoder, size, study.features) > budget
        passes = self._forward((epochs if streamed else 1) * size.train + size.validation)
        return passes + seeds * epochs * self._training(self.encoder.layers + 1)

    def baseline(self, study: StudySpec) -> float:
        """Every epoch of every seed's probe on one layer, the word embeddings, which cost nothing
        to look up.
        """
        return len(study.seeds) * self.task.probe.epochs * self._training(1)

    def _forward(self, rows: float) -> float:
        return 24 * self.encoder.layers * self.encoder.width**2 * (rows * self.size.tokens)

    def _training(self, layers: int) -> float:
        """One epoch of one probe."""
        size, width = self.size, self.encoder.width
        inputs, probe = float(size.train), layers * width * (width + size.tokens)
        match self.task.kind:
            case "words":
                inputs, probe = size.train * size.labelled, layers * width**2
            case "mlm":
                inputs, probe = size.train * size.labelled, width**2 + width * _VOCABULARY
        # Features are frozen: forward, and backward to the weights alone.
        return 4 * inputs * probe + self._optimising(layers, size.train)

    def _optimising(self, layers: int, rows: int) -> float:
        """What the optimiser's steps of one epoch of one probe take the time of."""
        return _STEP * layers * self.encoder.width**2 * math.ceil(rows / self.task.probe.batch_size)


def expected_rates(device: float, core: float = CORE) -> dict[str, float]:
    """Operations per second of each stage on devices with this rate in a matrix product; other
    stages run on a core.
    """
    return {
        **dict.fromkeys(("tokenise", "aggregate", "track"), core),
        **{stage: share * device for stage, share in SHARES.items()},
    }


def measured_rates(store: Store, device: str = "cpu") -> dict[str, float]:
    """Operations per second that a worker reached in each stage, over the finished artifacts of a
    store; steps that several workers shared count with the seconds of all of them.
    """
    rates = {}
    for stage in SHARES:
        known = [
            (one["flops"], one["worker_seconds"])
            for one in store.metadata(stage)
            if one.get("device") == device and one.get("worker_seconds") and one.get("flops")
        ]
        if known:
            work, seconds = map(sum, zip(*known, strict=True))
            rates[stage] = work / seconds
    return rates


def seconds_of(stage: str, flops: float, rates: Mapping[str, float]) -> float:
    """About how long one worker needs; a core's rate where ``rates`` lacks the stage."""
    return flops / rates.get(stage, CORE * SHARES.get(stage, 1.0))


_TOKENS = {"cpu": 512, "cuda": 16_384}
_SECONDS = 0.3
_DATA_SHEET = {"float32": 19.5, "bfloat16": 312.0}
"""TFLOP/s of an NVIDIA A100 without TF32 and sparsity (data sheet, 2020)."""


@dataclass(frozen=True)
class Device:
    """One worker's share of the machine: what it is, where its rate comes from, and the rate,
    floating point operations per second in a matrix product.
    """

    name: str
    flops: float


def one_core(width: int) -> Device:
    """A core of this machine, measured now on products of an encoder of this width."""
    return Device("one core, measured now", matrix_rate("cpu", "float32", width))


def gpu(precision: Precision, width: int) -> Device:
    """A GPU: this machine's, measured now, else an A100 by its data sheet."""
    import torch

    if torch.cuda.is_available():
        return Device(
            f"{torch.cuda.get_device_name()}, measured now", matrix_rate("cuda", precision, width)
        )
    rate = _DATA_SHEET[precision]
    return Device(f"an A100 at {rate:g} TFLOP/s by its data sheet", rate * 1e12)


def matrix_rate(device: str, precision: Precision, width: int) -> float:
    """Operations per second in a matrix product of an encoder of this width, by one thread or GPU,
    measured now.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # A layer's widest linear map on one micro-batch.
        tokens = _TOKENS[device]
        options: Any = {"device": device, "dtype": getattr(torch, precision)}
        inputs, weights = (
            torch.rand(tokens, width, **options),
            torch.rand(width, 4 * width, **options),
        )
        best, started = float("inf"), time.perf_counter()
        while time.perf_counter() - started < _SECONDS:
            begun = worker_clock(device)
            float((inputs @ weights)[0, 0])
            best = min(best, worker_clock(device) - begun)
    finally:
        torch.set_num_threads(threads)
    return 2 * tokens * width * 4 * width / best
