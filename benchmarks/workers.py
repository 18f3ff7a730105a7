"""Two Ray workers against one, one thread each: shards of an average, and one λ training that both share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import Measured, seconds
from benchmarks.setting import Setting
from papa.attention.average import average_split
from papa.attention.constants import control
from papa.corpora.corpus import load_corpus
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.progress import Progress
from papa.spec import EncoderSpec, ExecutionSpec, RankingSpec
from papa.storage.artifacts import reference
from papa.workers import WorkerPool
from tasks.rank import Rank
from tasks.step import compute_step
from tasks.store import Store

SHARDS, URGENCY = 8, 1


def one_shard(*, encoder: Any, folder: Path, index: int, progress: Progress) -> float:
    """Average one shard, several times over to outweigh the call; returns the sum of its counts."""
    corpus = load_corpus(folder)
    shard = corpus.split("train").shard(index)
    options = {"slots": corpus.slots, "batch_tokens": encoder.tokens_per_batch(None)}
    return float(sum(average_split(encoder, shard, **options).counts.sum() for _ in range(2)))


def worker_rows(short: Setting, long: Setting, folder: Path) -> Iterator[Measured]:
    """The same work on one worker and on two, both warm.

    Args:
        short: its text is averaged.
        long: λ is trained on its text, whose minibatches have work for two.
        folder: for artifacts and Ray.
    """
    encoder = resolve_encoder(EncoderSpec(name=EMBEDDED))
    place, numbers = folder / "constants", itertools.count()
    control("toeplitz", encoder.layers, encoder.heads, long.task.slots).save(place, encoder, {})

    def average(pool: WorkerPool, index: int) -> None:
        pool.run(one_shard, encoder=encoder, arguments={"folder": short.corpus.folder, "index": index}, urgency=URGENCY)

    def train_lambda(pool: WorkerPool) -> None:
        corpus, constants = reference(long.corpus.folder), reference(place)
        step = Rank("λ", 0.0, encoder, corpus, constants, long.task, RankingSpec(epochs=1))
        store = Store(folder / f"store-{next(numbers)}")
        arguments = {"step": step, "store": store, "execution": ExecutionSpec()}
        pool.run(compute_step, encoder=encoder, arguments=arguments, urgency=URGENCY, helpers=1)

    def all_shards(pool: WorkerPool) -> None:
        with ThreadPoolExecutor(SHARDS) as threads:
            list(threads.map(lambda index: average(pool, index), range(SHARDS)))

    for name, work in (("averaging", all_shards), ("λ training", train_lambda)):
        one, two = (spent(work, workers, folder) for workers in (1, 2))
        yield Measured(f"two Ray workers against one, {name}", two, one, one / two, 1.7)


def spent(work: Callable[[WorkerPool], None], workers: int, folder: Path) -> float:
    """The least of three, after one to warm up."""
    with WorkerPool(workers, "cpu", folder) as pool:
        work(pool)
        return min(seconds(lambda: work(pool)) for _ in range(3))
