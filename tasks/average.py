"""Stage ``average``: the average attention over a corpus, its shards spread over all workers. Sums
are exact in any grouping (``papa.heads.average``), so whoever is done first is added first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from papa.models.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec
from papa.storage.artifacts import read_metadata
from papa.storage.store import Store
from papa.tasks.step import Context, Step, stage

_CALLS_A_WORKER = 4
"""A worker that is lost takes a part of its work with it, and large sums are seldom sent."""


@stage("average", version=3, where="pool")
def average(run: Context, encoder: EncoderReference, corpus: Step, slots: int) -> None:
    """Average an encoder's attention over the training text of a corpus, in ``slots`` slots."""
    shards = read_metadata(run.found[corpus].path)["shards"]["train"]
    rows = [shard["rows"] for shard in shards]
    at_once = -(-len(rows) // (_CALLS_A_WORKER * run.pool.size))
    calls = [range(len(rows))[first : first + at_once] for first in range(0, len(rows), at_once)]
    shape = (encoder.layers, encoder.heads, slots, slots)
    lock, sums, counts = threading.Lock(), np.zeros(shape), np.zeros(shape[2:])
    done, spent = dict.fromkeys(calls, 0), {"worker_seconds": 0.0}

    def advance(call: range, part: int, parts: int) -> None:
        done[call] = sum(rows[shard] for shard in call) * part // max(parts, 1)
        run.progress(sum(done.values()), sum(rows))

    def add(call: range) -> None:
        asked = {"step": run.step, "shards": call, "store": run.store, "execution": run.execution}
        loaded = None if encoder.causal else encoder
        own_sums, own_counts, own = run.pool.run(
            sum_shards, encoder=loaded, arguments=asked, progress=partial(advance, call)
        )
        with lock:
            np.add(sums, own_sums, out=sums)
            np.add(counts, own_counts, out=counts)
            spent.update(own, worker_seconds=spent["worker_seconds"] + own["worker_seconds"])
        advance(call, 1, 1)

    threads = ThreadPoolExecutor(run.pool.size)
    try:
        list(threads.map(add, calls))
    finally:
        # After an error nobody waits for what other workers compute.
        threads.shutdown(wait=False, cancel_futures=True)
    place = {"folder": run.step.folder(run.store), "encoder_of": encoder}
    metadata = {**run.metadata(), **spent}
    run.pool.run(publish, arguments={"sums": sums, "counts": counts, "metadata": metadata, **place})


def sum_shards(
    *,
    step: Step,
    shards: Sequence[int],
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    encoder: Any = None,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """On a worker, sums [L, H, S, S] and counts [S, S] over some shards, and what they took."""
    from papa.heads.average import average_split

    run = Context(step, store, execution, progress, encoder)
    split, totals = run.corpus(step["corpus"]).split("train"), []
    for number, shard in enumerate(map(split.shard, shards)):

        def advance(done: int, of: int, before: int = number) -> None:
            progress(before * of + done, len(shards) * of)

        if encoder is not None:
            tokens = encoder.tokens_per_batch(execution.batch_tokens)
            asked = {"slots": step["slots"], "batch_tokens": tokens, "progress": advance}
            own = average_split(encoder, shard, **asked)
        else:
            own_head = run.own_model(step["corpus"]["task"], step["encoder"])
            own = own_head.average_by_position(shard, step["encoder"].heads, advance)
        totals.append(own)
        if len(totals) > 1:
            totals[0].merge(totals.pop())
    return totals[0].sums.numpy(), totals[0].counts.numpy(), run.spent()


def publish(
    *,
    sums: np.ndarray,
    counts: np.ndarray,
    folder: str,
    encoder_of: EncoderReference,
    metadata: Mapping[str, Any],
    progress: Progress,
) -> None:
    """Publish the constant matrices that the sums over all shards give; runs on a worker."""
    import torch

    from papa.heads.average import AttentionSums

    total = AttentionSums(torch.tensor(sums), torch.tensor(counts))
    total.average().save(folder, encoder_of, metadata)
