"""Average: C, the mean of a model's attention over unlabelled text (paper, Section 3.1).

The plain encoder of a probe runs on texts in the layout, and slots are the layout's. A model with a
native head runs as it always does, and slots are positions (``papa.native.observing``), as those of
a model in memory.

The text's shards are spread over all workers. Each call returns the sums over its shards; sums are
merged as they come, then divided and published as C. The sums of each batch are rounded so that
their additions are exact in any order (``papa.heads.average``): any number of workers, retries and
lost workers gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from papa.heads.sums import AttentionSums
from papa.models.reference import EncoderReference
from papa.spec import TaskSpec
from papa.storage.artifacts import read_metadata
from papa.tasks.context import Context
from papa.tasks.step import Step, stage
from papa.tasks.worker_calls import CALLS_PER_WORKER, WorkerCall, run_on_all_workers
from papa.text.corpus import open_corpus


@stage("average", version=3, runs_on="driver thread")
def average(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    slots: int,
    task: TaskSpec | None = None,
) -> None:
    """Average a model's attention over the training text, shard by shard on all workers.

    ``task``: None runs the plain encoder; else the model with this task's native head. In: the
    tokenised text and the encoder. Out: C, float32 [L, H, S, S], and in how many rows each pair of
    slots is real, [S, S]. Where: on all workers; if one is lost, another repeats its call.
    """
    shards = read_metadata(context.artifacts[text].path)["shards"]["train"]
    shape = (encoder.layers, encoder.heads, slots, slots)
    total = AttentionSums(np.zeros(shape), np.zeros(shape[2:]))
    worker_seconds = 0.0
    device = ""
    workers = context.executor.size
    shards_per_call = -(-len(shards) // (CALLS_PER_WORKER * workers))
    calls: list[WorkerCall] = []
    for first in range(0, len(shards), shards_per_call):
        numbers = range(len(shards))[first : first + shards_per_call]
        rows = sum(shards[number]["rows"] for number in numbers)
        calls.append(WorkerCall({"shards": numbers}, size=rows))
    run = partial(context.call_worker, sum_shards)
    for sums, spent in run_on_all_workers(run, calls, workers, context.progress):
        total.merge(sums)
        worker_seconds += spent["worker_seconds"]
        device = spent["device"]
    context.call_worker(
        publish_average,
        with_model=False,
        total=total,
        metadata={**context.build_metadata(), "device": device, "worker_seconds": worker_seconds},
    )


def sum_shards(context: Context, shards: Sequence[int]) -> tuple[AttentionSums, dict[str, Any]]:
    """Sum the attention over some shards of the training text, on a worker; return also the
    ``Context.time_spent``.
    """
    from papa.heads.average import average_split
    from papa.native.observing import average_by_position

    step = context.step
    task: TaskSpec | None = step["task"]
    split = open_corpus(context.artifacts[step["text"]]).split("train")
    total: AttentionSums | None = None
    for number, shard in enumerate(shards):

        def advance(done: int, rows: int, shards_before: int = number) -> None:
            context.progress(shards_before * rows + done, len(shards) * rows)

        if task is not None:
            native = context.open_native_head(task, step["encoder"], split.shard(shard))
            sums = average_by_position(native, step["slots"], advance)
        else:
            encoder = context.loaded_encoder
            sums = average_split(
                encoder,
                split.shard(shard),
                slots=step["slots"],
                batch_tokens=encoder.tokens_per_batch(context.execution.batch_tokens),
                progress=advance,
            )
        if total is None:
            total = sums
        else:
            total.merge(sums)
    assert total is not None, "a call has a shard"
    return total, context.time_spent()


def publish_average(context: Context, total: AttentionSums, metadata: Mapping[str, Any]) -> None:
    """Divide the sums over all shards, and publish C, on a worker."""
    from papa.heads.average import average_of

    step = context.step
    average_of(total).save(step.folder(context.store), metadata)
