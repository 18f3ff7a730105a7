"""Two Ray workers against one, one thread each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import Measured, seconds
from benchmarks.setting import Setting
from papa.attention.averager import average_split
from papa.corpora.corpus import load_corpus
from papa.encoders.reference import EMBEDDED, resolve_encoder
from papa.progress import Progress
from papa.spec import EncoderSpec
from papa.workers import WorkerPool


def one_shard(*, encoder: Any, folder: Path, index: int, progress: Progress) -> float:
    """Average one shard, several times over to outweigh the call; returns the sum of its counts."""
    corpus = load_corpus(folder)
    shard = corpus.split("train").shard(index)
    options = {"slots": corpus.slots, "pad_token_id": corpus.pad_token_id, "batch_tokens": encoder.tokens_a_batch(None)}
    return float(sum(average_split(encoder, shard, **options).counts.sum() for _ in range(4)))


def worker_rows(setting: Setting, folder: Path) -> Iterator[Measured]:
    """The same shards on one worker and on two, both warm."""
    reference, shards = resolve_encoder(EncoderSpec(name=EMBEDDED)), 4

    def spent(workers: int) -> float:
        with WorkerPool(workers, "cpu", folder) as pool, ThreadPoolExecutor(shards) as threads:

            def work() -> None:
                calls = [
                    threads.submit(
                        pool.run,
                        one_shard,
                        encoder=reference,
                        arguments={"folder": setting.corpus.folder, "index": index},
                    )
                    for index in range(shards)
                ]
                for call in calls:
                    call.result()

            work()
            return min(seconds(work) for _ in range(3))

    one, two = spent(1), spent(2)
    yield Measured("two Ray workers against one, averaging", two, one, one / two, 1.7)
