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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from papa.models.reference import EncoderReference
from papa.progress import Progress
from papa.spec import ExecutionSpec, TaskSpec
from papa.storage.artifacts import read_metadata
from papa.storage.store import Store
from papa.tasks.context import Context, model_of
from papa.tasks.step import Step, stage
from papa.tasks.worker_calls import CALLS_PER_WORKER, WorkerCall, run_on_all_workers
from papa.text.corpus import open_corpus

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from papa.models.encoder import Encoder


@stage("average", version=3, runs_on="all workers")
def average(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    slots: int,
    task: TaskSpec | None = None,
) -> None:
    """Average a model's attention over the training text, shard by shard on all workers.

    In: the tokenised text and the encoder, plain without a ``task``, else with the task's native
    head. Out: C, float32 [L, H, S, S], and in how many rows each pair of slots is real, [S, S].
    Where: on all workers; if one is lost, another repeats its call.
    """
    executor = context.executor
    shards = read_metadata(context.artifacts[text].path)["shards"]["train"]
    rows_by_shard = [shard["rows"] for shard in shards]
    shape = (encoder.layers, encoder.heads, slots, slots)
    total = ShardSums(np.zeros(shape), np.zeros(shape[2:]), worker_seconds=0.0, device="cpu")
    calls = [
        WorkerCall({"shards": numbers}, size=sum(rows_by_shard[number] for number in numbers))
        for numbers in _shards_by_call(len(shards), CALLS_PER_WORKER * executor.size)
    ]
    for sums in run_on_all_workers(
        executor,
        sum_shards,
        calls,
        arguments={"step": context.step, "store": context.store, "execution": context.execution},
        model=model_of(context.step),
        progress=context.progress,
    ):
        total = total.merged(sums)
    executor.run(
        publish_average,
        arguments={
            "total": total,
            "folder": context.step.folder(context.store),
            "averaged_encoder": encoder,
            "metadata": context.metadata(),
        },
    )


@dataclass(frozen=True)
class ShardSums:
    """Σ A over some shards, and in how many rows each pair of slots is real; ``special`` is that of
    the average (``papa.heads.constants``).

    Arrays and no tensors: the driver, which merges them, does without torch.
    """

    sums: Float[np.ndarray, "layers heads slots slots"]
    counts: Float[np.ndarray, "slots slots"]
    worker_seconds: float
    device: str
    special: tuple[int, ...] | None = None

    def merged(self, other: ShardSums) -> ShardSums:
        """Return the sum with others, in the arrays of this one: memory may not hold a third."""
        np.add(self.sums, other.sums, out=self.sums)
        np.add(self.counts, other.counts, out=self.counts)
        seconds = self.worker_seconds + other.worker_seconds
        return ShardSums(self.sums, self.counts, seconds, other.device, other.special)


def sum_shards(
    *,
    step: Step,
    shards: Sequence[int],
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    model: Encoder | PreTrainedModel,
) -> ShardSums:
    """Sum the attention over some shards of the training text, on a worker."""
    from papa.heads.average import average_split
    from papa.native.observing import average_by_position

    context = Context((step,), store, execution, progress, model)
    task: TaskSpec | None = step["task"]
    split = open_corpus(context.artifacts[step["text"]]).split("train")
    sums_by_shard = []
    for number, shard in enumerate(shards):

        def advance(done: int, rows: int, shards_before: int = number) -> None:
            progress(shards_before * rows + done, len(shards) * rows)

        if task is not None:
            native = context.open_native_head(task, step["encoder"], split.shard(shard))
            sums = average_by_position(native, step["slots"], advance)
        else:
            encoder = context.loaded_encoder
            sums = average_split(
                encoder,
                split.shard(shard),
                slots=step["slots"],
                batch_tokens=encoder.tokens_per_batch(execution.batch_tokens),
                progress=advance,
            )
        sums_by_shard.append(sums)
        if number > 0:
            sums_by_shard[0].merge(sums_by_shard.pop())
    spent = context.time_spent()
    (total,) = sums_by_shard
    return ShardSums(total.sums.numpy(), total.counts.numpy(), **spent, special=total.special)


def publish_average(
    *,
    total: ShardSums,
    folder: str,
    averaged_encoder: EncoderReference,
    metadata: dict[str, Any],
    progress: Progress,
) -> None:
    """Divide the sums over all shards, and publish C, on a worker."""
    import torch

    from papa.heads.average import AttentionSums

    # Copies: what comes through Ray's object store cannot be written to.
    sums = AttentionSums(torch.tensor(total.sums), torch.tensor(total.counts), total.special)
    spent = {"worker_seconds": total.worker_seconds, "device": total.device}
    sums.average().save(folder, averaged_encoder, {**metadata, **spent})


def _shards_by_call(shards: int, most_calls: int) -> Iterator[range]:
    """Divide consecutive shards evenly among at most ``most_calls`` calls."""
    shards_per_call = -(-shards // most_calls)
    for first in range(0, shards, shards_per_call):
        yield range(first, min(first + shards_per_call, shards))
