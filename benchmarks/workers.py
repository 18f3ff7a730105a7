"""Two Ray workers against one, one thread each: shards of an average, and one λ training that both
share.

Both ways run on one pool of two: one worker is what a pool of two gives to calls one after the
other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.rows import Row
from benchmarks.setting import sample
from papa.attention.average import average_split
from papa.corpora import fingerprint
from papa.corpora.corpus import load_corpus
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.progress import Progress, ignore_progress
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, RankingSpec
from papa.study.controls import Controls
from papa.study.rank import Rank
from papa.study.step import compute_step
from papa.study.store import Store
from papa.study.tokenise import Tokenise
from papa.timing import Comparison, Part, in_turn
from papa.workers import WorkerPool

SHARDS, URGENCY = 8, 1


def one_shard(*, encoder: Any, folder: Path, index: int, progress: Progress) -> float:
    """Average one shard, several times over to outweigh the call; returns the sum of its counts."""
    corpus = load_corpus(folder)
    shard = corpus.split("train").shard(index)
    options = {"slots": corpus.slots, "batch_tokens": encoder.tokens_per_batch(None)}
    return float(sum(average_split(encoder, shard, **options).counts.sum() for _ in range(2)))


def averaging(folder: Path) -> Comparison:
    """Shards of UD's text."""
    corpus, encoder = sample("ud", folder).corpus, resolve_encoder(EncoderSpec(name=EMBEDDED))

    def average(pool: WorkerPool, index: int) -> None:
        pool.run(
            one_shard,
            encoder=encoder,
            arguments={"folder": corpus.folder, "index": index},
            urgency=URGENCY,
        )

    def all_shards(pool: WorkerPool, at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(partial(average, pool), range(SHARDS)))

    return two_against_one(
        lambda pool: all_shards(pool, SHARDS), lambda pool: all_shards(pool, 1), folder
    )


def ranking(folder: Path) -> Comparison:
    """λ on RTE's text, whose minibatches have work for two."""
    rte, encoder = sample("rte", folder), resolve_encoder(EncoderSpec(name=EMBEDDED))
    numbers, content = itertools.count(), fingerprint(rte.task.source)
    corpus = Tokenise("tokens", 0.0, encoder, rte.task, LayoutSpec(), content)
    constants = Controls("constants", 0.0, encoder, "toeplitz", rte.task.slots)
    step = Rank("λ", 0.0, encoder, corpus, constants, rte.task, RankingSpec(epochs=1), 0)

    def train(pool: WorkerPool, with_helpers: bool) -> None:
        store = Store(folder / f"store-{next(numbers)}")
        for need in (corpus, constants):
            compute_step(
                step=need, store=store, execution=ExecutionSpec(), progress=ignore_progress
            )
        arguments = {"step": step, "store": store, "execution": ExecutionSpec()}
        pool.run(
            compute_step,
            encoder=encoder,
            arguments=arguments,
            urgency=URGENCY,
            helpers=int(with_helpers),
        )

    return two_against_one(lambda pool: train(pool, True), lambda pool: train(pool, False), folder)


def two_against_one(
    two: Callable[[WorkerPool], None], one: Callable[[WorkerPool], None], folder: Path
) -> Comparison:
    """The same work on two workers and on one of them."""
    with WorkerPool(2, "cpu", folder) as pool:
        two(pool)
        return in_turn(lambda: two(pool), Part(lambda: one(pool)))


def worker_rows(folder: Path) -> Iterator[Row]:
    """What the second worker gains."""
    yield Row("workers", "two Ray workers against one, averaging", 1.7, partial(averaging, folder))
    yield Row("workers", "two Ray workers against one, λ training", 1.7, partial(ranking, folder))
