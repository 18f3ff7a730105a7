"""Sweep: the effect of every head of a native head, spread over all workers.

A shard is some batches of texts and some of the heads. It computes the loss of each text with each
of these heads replaced. Each loss has a position of its own, so any number of workers, retries and
lost workers gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from papa.models.reference import EncoderReference
from papa.progress import Progress
from papa.ranking.head_scores import order_of_rows, rows_of_seed
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec
from papa.spec.orders import Head
from papa.storage.store import Store
from papa.tasks.context import Context, model_of
from papa.tasks.head_scores import publish_head_scores
from papa.tasks.rank import open_native_loss
from papa.tasks.shards import CALLS_PER_WORKER, Shard, run_shards
from papa.tasks.step import Step, stage

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SWEPT_METHOD = "effect"
_Rows = Int[np.ndarray, " texts"]


@stage("sweep_heads", version=2, place="all workers")
def sweep_heads(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    seed: int,
) -> None:
    """Compute the effect of every head on the loss of a model's native head.

    In: the tokenised text, the task's own average, and the model's files. Out: as ``score_heads``.
    Where: on all workers; another worker repeats the shard of a lost one.

    Args:
        context: What the body may use.
        encoder: The model.
        text: The tokenised text.
        average: The average over the task's own text.
        task: What decides the loss.
        ranking: Rows.
        seed: Decides the rows.
    """
    workers = context.executor
    step_arguments = {
        "step": context.step,
        "store": context.store,
        "execution": context.execution,
    }
    model = model_of(context.step)
    texts: SweptTexts = workers.run(texts_to_sweep, model=model, arguments=step_arguments)
    heads = [(int(layer), int(head)) for layer, head in np.ndindex(encoder.layers, encoder.heads)]
    position = {int(row): index for index, row in enumerate(np.sort(np.concatenate(texts.batches)))}
    sums = np.zeros((len(heads) + 1, len(position)))
    lengths = np.zeros(len(position), dtype=np.int64)
    worker_seconds = 0.0

    def report_heads(done: int, total: int) -> None:
        context.progress(len(heads) * done // max(total, 1), len(heads))

    for losses in run_shards(
        workers,
        losses_of_shard,
        list(_shards(texts.batches, [(), *((head,) for head in heads)], workers.size)),
        arguments={**step_arguments, "reuse_is_exact": texts.reuse_is_exact},
        model=model,
        progress=report_heads,
    ):
        columns = [position[int(row)] for row in losses.rows]
        sums[np.ix_(losses.sets, columns)] = losses.sums
        lengths[columns] = losses.lengths
        worker_seconds += losses.worker_seconds
    workers.run(
        publish_effect,
        arguments={
            **step_arguments,
            "added_losses": sums[1:] - sums[0],
            "lengths": lengths,
            "size": (encoder.layers, encoder.heads),
            "worker_seconds": worker_seconds,
        },
    )


@dataclass(frozen=True)
class SweptTexts:
    """The texts of a sweep, and what all its shards need to know of the model.

    Attributes:
        batches: The rows of each batch that the native head takes at once.
        reuse_is_exact: Whether passes may reuse lower layers. It takes passes through every layer
            to learn, so that shards are not to try it each.
    """

    batches: list[_Rows]
    reuse_is_exact: bool


@dataclass(frozen=True)
class ShardLosses:
    """The losses of some texts with some sets of heads replaced.

    Attributes:
        rows: The texts.
        sets: The numbers of the sets.
        sums: The sum of each text's losses, float64.
        lengths: How many losses each sum is of.
        worker_seconds: What the shard took.
    """

    rows: _Rows
    sets: Sequence[int]
    sums: Float[np.ndarray, "sets texts"]
    lengths: Int[np.ndarray, " texts"]
    worker_seconds: float


def _shards(
    batches: Sequence[_Rows], head_sets: Sequence[tuple[Head, ...]], workers: int
) -> list[Shard]:
    """Divide batches among as many calls as keep the workers busy; and where batches are fewer,
    the sets of heads too.
    """
    calls = CALLS_PER_WORKER * workers
    batches_per_call = -(-len(batches) // calls)
    groups = [
        batches[first : first + batches_per_call]
        for first in range(0, len(batches), batches_per_call)
    ]
    calls_of_group = min(-(-calls // len(groups)), len(head_sets))
    shards: list[Shard] = []
    for group in groups:
        texts = sum(map(len, group))
        for call in range(calls_of_group):
            # Every n-th set: heads of all layers, as those of lower ones take longer.
            sets = list(range(call, len(head_sets), calls_of_group))
            arguments = {
                "batches": group,
                "sets": sets,
                "head_sets": [head_sets[number] for number in sets],
            }
            shards.append(Shard(arguments, size=texts * len(sets)))
    return shards


def texts_to_sweep(
    *,
    step: Step,
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    model: PreTrainedModel,
) -> SweptTexts:
    """Return the texts in batches, and whether passes may reuse lower layers, on a worker."""
    from papa.ranking.loss_scores import VALUED_ROWS

    context = Context((step,), store, execution, progress, model)
    corpus = context.open_text(step["text"])
    native = open_native_loss(context, step["encoder"], corpus, step["task"])
    count = step["ranking"].rows or VALUED_ROWS
    rows = np.sort(rows_of_seed(len(native.texts), count, step["seed"]))
    batches = [batch.rows for batch in native.texts.batches(rows)]
    return SweptTexts(batches, reuse_is_exact=bool(native.reuse.layers))


def losses_of_shard(
    *,
    step: Step,
    batches: Sequence[_Rows],
    sets: Sequence[int],
    head_sets: Sequence[Sequence[Head]],
    reuse_is_exact: bool,
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
    model: PreTrainedModel,
) -> ShardLosses:
    """Compute the losses of some batches without each of some sets of heads, on a worker."""
    from papa.heads.constants import ConstantMatrices

    context = Context((step,), store, execution, progress, model)
    encoder: EncoderReference = step["encoder"]
    corpus = context.open_text(step["text"])
    native = open_native_loss(context, encoder, corpus, step["task"])
    native = replace(native, reuse_is_exact=reuse_is_exact)
    constants = ConstantMatrices.load(
        context.artifacts[step["average"]], encoder=encoder, slots=step["task"].slots
    ).to(native.device)
    sums: list[Float[np.ndarray, "sets texts"]] = []
    lengths: list[Int[np.ndarray, " texts"]] = []
    for number, rows in enumerate(batches):

        def advance(done: int, total: int, batches_before: int = number) -> None:
            progress(batches_before * total + done, len(batches) * total)

        values = native.values_of_sets(constants, head_sets, rows, advance)
        sums.append(np.stack([of_set.sums for of_set in values]))
        lengths.append(values[0].lengths)
    return ShardLosses(
        np.concatenate(batches),
        sets,
        np.concatenate(sums, axis=1),
        np.concatenate(lengths),
        context.time_spent()["worker_seconds"],
    )


def publish_effect(
    *,
    step: Step,
    added_losses: Float[np.ndarray, "heads texts"],
    lengths: Int[np.ndarray, " texts"],
    size: tuple[int, int],
    worker_seconds: float,
    store: Store,
    execution: ExecutionSpec,
    progress: Progress,
) -> None:
    """Publish the effect of every head, and its standard error over texts, on a worker."""
    from papa.ranking.loss_scores import VALUED_ROWS
    from papa.ranking.set_values import effect_of_losses

    context = Context((step,), store, execution, progress)
    scores = effect_of_losses(added_losses, lengths, size, by_text=True)
    texts = len(context.open_text(step["text"]).split("train"))
    ranking: RankingSpec = step["ranking"]
    order = order_of_rows(texts, ranking.rows or VALUED_ROWS, step["seed"])
    publish_head_scores(context, {SWEPT_METHOD: scores}, order, worker_seconds=worker_seconds)
