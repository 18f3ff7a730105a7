"""Sweep: the effect of every head of a native head, spread over all workers.

A shard is some batches of texts and some of the heads. It computes the loss of each text with each
of these heads replaced. Each loss has a position of its own, so any number of workers, retries and
lost workers gives the same bits.

A finished shard is an artifact below the step's own, until that is published: a run that follows a
killed one reads it, and computes the missing losses alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file, save_file

from papa.errors import DamagedError
from papa.files import sha256_of_json
from papa.models.reference import EncoderReference
from papa.ranking.head_scores import EVALUATION_ROWS, partition_of, rows_of_seed
from papa.spec import RankingSpec, TaskSpec
from papa.spec.orders import Head, Unit
from papa.storage.artifacts import SHARDS, has_metadata, published, read_metadata, remove, verified
from papa.storage.files import Files
from papa.tasks.context import Context
from papa.tasks.head_scores import publish_head_scores
from papa.tasks.rank import open_native_loss
from papa.tasks.step import Step, stage
from papa.tasks.worker_calls import CALLS_PER_WORKER, WorkerCall, run_on_all_workers
from papa.text.corpus import open_corpus

SWEPT_METHOD = "effect"
LOSSES = "losses.safetensors"
_LEAST_SHARDS = 32
"""The number of shards that a sweep is divided into at least: a killed run loses those that it was
computing.
"""
_LEAST_SETS = 64
"""The number of heads in a shard at least, where batches are divided by heads too. Each such shard
passes its texts once more, for the original answers and the layers that passes reuse: 3 % of the
work for 64 heads that start at the middle layer.
"""
_Rows = Int[np.ndarray, " texts"]


@stage("sweep_heads", version=2, runs_on="driver thread")
def sweep_heads(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    seed: int,
    unit: Unit = "head",
) -> None:
    """Compute the effect of every head, or group of heads, on the loss of a model's native head.

    In: the tokenised text, of which the seed decides the rows, the task's own average, and the
    model's files. Out: as ``score_heads``. Where: on all workers; another worker repeats the shard
    of a lost one.
    """
    workers = context.executor.size
    folder = context.step.folder(context.store)
    batches, reuse_is_exact = context.call_worker(batches_to_sweep)
    size = encoder.layers, encoder.heads // encoder.heads_per_unit(unit)
    units = [(int(layer), int(number)) for layer, number in np.ndindex(*size)]
    table = LossTable(np.sort(np.concatenate(batches)), set_count=len(units) + 1)
    for losses in _finished_shards(folder):
        table.add(losses)

    def report_units(done: int, total: int) -> None:
        finished_before = table.sums.size - total
        context.progress(len(units) * (finished_before + done) // table.sums.size, len(units))

    run = partial(context.call_worker, losses_of_shard, reuse_is_exact=reuse_is_exact)
    shards = _shards(batches, [(), *((unit,) for unit in units)], workers, table)
    for losses in run_on_all_workers(run, shards, workers, report_units):
        table.add(losses)
    context.call_worker(
        publish_effect,
        with_model=False,
        added_losses=table.sums[1:] - table.sums[0],
        lengths=table.lengths,
        size=size,
        seconds=context.seconds,
        worker_seconds=table.worker_seconds,
    )
    Files(folder).remove(SHARDS)


@dataclass(frozen=True)
class ShardLosses:
    """The losses of some texts with some sets of heads replaced.

    Attributes:
        rows: The texts.
        sets: The numbers of the sets; set 0 replaces nothing.
        sums: The sum of each text's losses, float64.
        lengths: Number of losses in each sum.
        worker_seconds: What the shard took.
    """

    rows: _Rows
    sets: Int[np.ndarray, " sets"]
    sums: Float[np.ndarray, "sets texts"]
    lengths: Int[np.ndarray, " texts"]
    worker_seconds: float

    def publish(self, context: Context) -> None:
        """Publish the losses as an artifact below that of the step."""
        tensors = {"rows": self.rows, "sets": self.sets, "sums": self.sums, "lengths": self.lengths}
        name = sha256_of_json([self.rows.tolist(), self.sets.tolist()])
        address = f"{context.step.folder(context.store)}/{SHARDS}/{name}"
        metadata = {**context.build_metadata(), "worker_seconds": self.worker_seconds}
        with published(address, metadata) as folder:
            save_file(tensors, folder / LOSSES)

    @classmethod
    def load(cls, address: str) -> ShardLosses:
        """Read the losses of a finished shard. Raises DamagedError."""
        tensors = load_file(verified(address, LOSSES) / LOSSES)
        return cls(**tensors, worker_seconds=read_metadata(address)["worker_seconds"])


class LossTable:
    """The losses of all texts with each set of heads replaced, as far as they are computed.

    Attributes:
        rows: The texts, sorted.
        sums: The sum of each text's losses, float64 [sets, texts]; NaN where it is missing.
        lengths: Number of losses in each sum, [texts].
        worker_seconds: What its shards took.
    """

    def __init__(self, rows: _Rows, set_count: int) -> None:
        self.rows = rows
        self.sums = np.full((set_count, len(rows)), np.nan)
        self.lengths = np.zeros(len(rows), dtype=np.int64)
        self.worker_seconds = 0.0

    def add(self, losses: ShardLosses) -> None:
        """Take the losses of a shard, each at its position."""
        columns = np.searchsorted(self.rows, losses.rows)
        self.sums[np.ix_(losses.sets, columns)] = losses.sums
        self.lengths[columns] = losses.lengths
        self.worker_seconds += losses.worker_seconds

    def is_missing(self, sets: Sequence[int], rows: _Rows) -> bool:
        """Return whether a loss of these texts with these sets replaced is missing."""
        columns = np.searchsorted(self.rows, rows)
        return bool(np.isnan(self.sums[np.ix_(np.array(sets), columns)]).any())


def _finished_shards(folder: str) -> Iterator[ShardLosses]:
    """Yield the shards that an earlier run finished; remove those that are damaged."""
    shards = f"{folder}/{SHARDS}"
    for name in sorted({path.partition("/")[0] for path in Files(shards).find()}):
        address = f"{shards}/{name}"
        # A run on another machine may be writing one that is not complete.
        if not has_metadata(address):
            continue
        try:
            yield ShardLosses.load(address)
        except DamagedError:
            remove(address)


def _shards(
    batches: Sequence[_Rows], head_sets: Sequence[tuple[Head, ...]], workers: int, table: LossTable
) -> list[WorkerCall]:
    """Divide batches among as many calls as keep the workers busy, and where there are fewer
    batches, the sets of heads too; leave out what the table holds.
    """
    calls = CALLS_PER_WORKER * workers
    batches_per_call = -(-len(batches) // max(calls, _LEAST_SHARDS))
    groups = [
        batches[first : first + batches_per_call]
        for first in range(0, len(batches), batches_per_call)
    ]
    calls_of_group = max(
        -(-calls // len(groups)),
        min(-(-_LEAST_SHARDS // len(groups)), len(head_sets) // _LEAST_SETS),
    )
    shards: list[WorkerCall] = []
    for group in groups:
        for call in range(min(calls_of_group, len(head_sets))):
            # Every n-th set: heads of all layers, as those of lower ones take longer.
            all_sets = range(call, len(head_sets), calls_of_group)
            missing_batches = [rows for rows in group if table.is_missing(all_sets, rows)]
            if not missing_batches:
                continue
            rows = np.concatenate(missing_batches)
            sets = [number for number in all_sets if table.is_missing([number], rows)]
            arguments = {
                "batches": missing_batches,
                "sets": sets,
                "head_sets": [head_sets[number] for number in sets],
            }
            shards.append(WorkerCall(arguments, size=len(rows) * len(sets)))
    return shards


def batches_to_sweep(context: Context) -> tuple[list[_Rows], bool]:
    """Return the rows of each batch that the native head takes at once, and whether passes may
    reuse lower layers, on a worker. To learn that takes passes through every layer, so shards are
    told.
    """
    step = context.step
    corpus = open_corpus(context.artifacts[step["text"]])
    native = open_native_loss(context, step["encoder"], corpus, step["task"], step["unit"])
    count = step["ranking"].rows or EVALUATION_ROWS
    rows = np.sort(rows_of_seed(len(native.texts), count, step["seed"]))
    batches = [batch.rows for batch in native.texts.batches(rows)]
    return batches, bool(native.reuse.layers)


def losses_of_shard(
    context: Context,
    batches: Sequence[_Rows],
    sets: Sequence[int],
    head_sets: Sequence[Sequence[Head]],
    reuse_is_exact: bool,
) -> ShardLosses:
    """Compute and publish the losses of some batches with each of some sets of heads replaced, on a
    worker.
    """
    from papa.heads.constants import ConstantMatrices

    step = context.step
    corpus = open_corpus(context.artifacts[step["text"]])
    native = open_native_loss(context, step["encoder"], corpus, step["task"], step["unit"])
    native = replace(native, reuse_is_exact=reuse_is_exact)
    constants = ConstantMatrices.load(context.artifacts[step["average"]]).to(native.device)
    sums: list[Float[np.ndarray, "sets texts"]] = []
    lengths: list[Int[np.ndarray, " texts"]] = []
    for number, rows in enumerate(batches):

        def advance(done: int, total: int, batches_before: int = number) -> None:
            context.progress(batches_before * total + done, len(batches) * total)

        values = native.values_of_sets(constants, head_sets, rows, advance)
        sums.append(np.stack([of_set.sums for of_set in values]))
        lengths.append(values[0].lengths)
    losses = ShardLosses(
        np.concatenate(batches),
        np.array(sets),
        np.concatenate(sums, axis=1),
        np.concatenate(lengths),
        context.time_spent()["worker_seconds"],
    )
    losses.publish(context)
    return losses


def publish_effect(
    context: Context,
    added_losses: Float[np.ndarray, "heads texts"],
    lengths: Int[np.ndarray, " texts"],
    size: tuple[int, int],
    seconds: float,
    worker_seconds: float,
) -> None:
    """Publish the effect of every head, and its standard error over texts, on a worker; the sweep
    took these ``seconds``.
    """
    from papa.ranking.set_values import effect_of_losses

    step = context.step
    scores = effect_of_losses(added_losses, lengths, size, by_text=True)
    texts = len(open_corpus(context.artifacts[step["text"]]).split("train"))
    ranking: RankingSpec = step["ranking"]
    publish_head_scores(
        context,
        {SWEPT_METHOD: scores},
        partition_of(texts, ranking.rows or EVALUATION_ROWS, step["seed"]),
        seconds=seconds,
        worker_seconds=worker_seconds,
    )
