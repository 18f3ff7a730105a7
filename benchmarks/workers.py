"""Two Ray workers against one, one thread each: shards of an average, and one λ training and the
effects of heads that both share.

Both ways run on one pool of two: one worker is what a pool of two gives to calls one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.rows import Row
from benchmarks.setting import sample
from benchmarks.timing import Comparison, Part, in_turn
from papa.attention.average import average_split
from papa.corpora import fingerprint
from papa.corpora.corpus import load_corpus
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.progress import Bars, Progress
from papa.spec import EncoderSpec, ExecutionSpec, LayoutSpec, RankingSpec
from papa.storage.artifacts import remove
from papa.study.average import Average
from papa.study.here import run_here
from papa.study.rank import Rank
from papa.study.score_heads import FrozenProbe, ScoreHeads
from papa.study.step import WorkerStep, compute_step
from papa.study.store import Store
from papa.study.tokenise import Tokenise
from papa.workers import WorkerPool

SHARDS, URGENCY, ROWS = 8, 1, 32


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
        arguments = {"folder": corpus.folder, "index": index}
        pool.run(one_shard, encoder=encoder, arguments=arguments, urgency=URGENCY)

    def all_shards(pool: WorkerPool, at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(partial(average, pool), range(SHARDS)))

    return two_against_one(
        lambda pool: all_shards(pool, SHARDS), lambda pool: all_shards(pool, 1), folder
    )


def shared(stage: str, folder: Path) -> Comparison:
    """A step on RTE's text whose minibatches, or evaluations, have work for two."""
    rte, encoder = sample("rte", folder), resolve_encoder(EncoderSpec(name=EMBEDDED))
    task, ranking = rte.task, RankingSpec(epochs=1, rows=None if stage == "rank" else ROWS)
    corpus = Tokenise("tokens", 0.0, encoder, task, LayoutSpec(), fingerprint(task.source))
    constants = Average("average", 0.0, encoder, corpus, task.slots)
    of_step = "step", 0.0, encoder, corpus, constants, task, ranking
    probe = FrozenProbe("probe", 0.0, encoder, corpus, task, 0)
    step: WorkerStep = (
        Rank(*of_step, 0) if stage == "rank" else ScoreHeads(*of_step, ("effect",), 0, probe)
    )
    store = Store(folder / f"store-{stage}")
    store.make()
    run_here(step.needs, store, ExecutionSpec(), Bars(shown=False))

    def compute(helpers: int, pool: WorkerPool) -> None:
        remove(step.folder(store))
        arguments = {"step": step, "store": store, "execution": ExecutionSpec()}
        pool.run(
            compute_step, encoder=encoder, arguments=arguments, urgency=URGENCY, helpers=helpers
        )

    return two_against_one(partial(compute, 1), partial(compute, 0), folder)


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
    for stage, name in (("rank", "λ training"), ("scores", "effects of heads")):
        title = f"two Ray workers against one, {name}"
        yield Row("workers", title, 1.7, partial(shared, stage, folder))
