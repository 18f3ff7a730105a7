"""Scores of heads: the head with the smallest score becomes constant first.

``train_lambda`` trains λ (paper, Section 3.2); ``score_heads`` computes the other methods
(``papa.ranking.orders``), some of which read a probe that ``train_frozen_probe`` trains first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from papa.models.reference import EncoderReference
from papa.ranking.head_scores import (
    EVALUATION_ROWS,
    HeadScores,
    partition_of,
    rows_and_partition,
    rows_of_seed,
)
from papa.ranking.orders import SCORING_METHODS
from papa.spec import ProbeSpec, RankingSpec, TaskSpec
from papa.spec.orders import Unit
from papa.storage.artifacts import verified
from papa.tasks.context import Context, is_native
from papa.tasks.head_scores import LAMBDA, publish_head_scores
from papa.tasks.step import Step, stage
from papa.text.corpus import TokenisedCorpus, open_corpus
from papa.text.sources import Split

if TYPE_CHECKING:
    from papa.native.passes import NativeHead
    from papa.probes.probes import Probe
    from papa.ranking.loss_scores import HeadLoss, ScoringRequest

PROBE = "probe.safetensors"


@stage("train_lambda", version=12)
def train_lambda(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    seed: int,
    rows_divided_by: tuple[int, ...] = (),
    shuffled: bool = False,
    unit: Unit = "head",
) -> None:
    """Train λ of every head, with B = λA + (1 - λ)C, on a task's training text.

    The ``seed`` decides the rows, their order, and the probe's start; the ranking seeds
    ``rows_divided_by`` divide the rows of a native head among them. With ``shuffled`` labels it is
    the control. In: the tokenised text, the task's own average C, and the encoder. Out: λ,
    [L, H]. Where: a worker.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.native import training
    from papa.ranking import learned
    from papa.ranking.loss_scores import LossRequest

    corpus = open_corpus(context.artifacts[text])
    if shuffled:
        corpus = replace(corpus, shuffled=seed)
    count = len(corpus.split("train"))
    rows, partition = rows_and_partition(count, ranking.rows, seed, rows_divided_by)
    constants = ConstantMatrices.load(context.artifacts[average])
    if task.head == "native":
        native = open_native_loss(context, encoder, corpus, task, unit)
        request = LossRequest(
            loss=native,
            substitute=constants.to(native.device),
            rows=rows,
            valued_rows=rows,
            evaluations=0,
            seed=seed,
            training=task.probe,
            progress=context.progress,
        )
        values = training.train_lambda(request, context.on_epoch).astype(np.float32)
    else:
        trained = learned.train_lambda(
            context.loaded_encoder,
            constants,
            corpus,
            task,
            rows=ranking.rows,
            seed=seed,
            progress=context.progress,
            on_epoch=context.on_epoch,
        )
        values = trained.numpy()
    with context.published(
        epochs=task.probe.epochs, order_of_rows=partition, native=task.head == "native"
    ) as folder:
        save_file({"lambda": values}, folder / LAMBDA)


def open_native_loss(
    context: Context,
    encoder: EncoderReference,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    unit: Unit,
    split: Split = "train",
) -> NativeHead:
    """Return the native head on a split of the text, with the loss of the task."""
    from papa.native.losses import loss_of_task

    native = context.open_native_head(task, encoder, corpus.split(split), corpus.label_names)
    return replace(native, loss=loss_of_task(task), unit=unit)


@stage("train_frozen_probe", version=2)
def train_frozen_probe(
    context: Context, encoder: EncoderReference, text: Step, task: TaskSpec, seed: int
) -> None:
    """Train the probe of one seed on the plain encoder; the methods that read it share it.

    In: the tokenised text and the encoder. Out: the probe's weights. Where: a worker.
    """
    from safetensors.torch import save_file as save_tensors

    from papa.probes.evaluate import train_probes

    with context.scratch_folder() as scratch:
        (probe,) = train_probes(
            context.loaded_encoder,
            open_corpus(context.artifacts[text]),
            task,
            [seed],
            scratch,
            context.execution,
            progress=context.progress,
        )
    with context.published() as folder:
        save_tensors(probe.state_dict(), folder / PROBE)


@stage("score_heads", version=10)
def score_heads(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    methods: tuple[str, ...],
    seed: int | None,
    frozen_probe: Step | None = None,
    rows_divided_by: tuple[int, ...] = (),
    unit: Unit = "head",
) -> None:
    """Score all heads by methods that share a pass over the training text.

    The ``seed`` decides rows and draws, None where nothing is drawn; the ranking seeds
    ``rows_divided_by`` divide the rows of a native head among them. In: the tokenised text, the
    task's own average, the encoder, and for some methods a probe. Out: [L, H] by method, with
    standard errors where the method has them. Where: a worker.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.native.scores import score_heads_by
    from papa.native.training import training_spec
    from papa.ranking.loss_scores import LossRequest, ScoringRequest

    corpus = open_corpus(context.artifacts[text])
    constants = ConstantMatrices.load(context.artifacts[average])
    drawn_seed = seed or 0
    count = len(corpus.split("train"))
    rows, partition = rows_and_partition(count, ranking.rows, drawn_seed, rows_divided_by)
    loss = _head_loss(context, encoder, corpus, task, drawn_seed, frozen_probe, unit)
    if loss is None:
        request = ScoringRequest(
            encoder=context.loaded_encoder,
            constants=constants,
            corpus=corpus,
            task=task,
            ranking=ranking,
            seed=drawn_seed,
            execution=context.execution,
            progress=context.progress,
        )
        scores_by_method = _scores_without_loss(methods, request)
        publish_head_scores(context, scores_by_method, partition, native=False)
        return
    entry = SCORING_METHODS[methods[0]]
    valued_rows = ranking.rows or EVALUATION_ROWS
    if entry.evaluates_head_sets:
        partition = partition_of(count, valued_rows, drawn_seed)
    training: ProbeSpec | None = None
    if entry.is_trained:
        training = training_spec(methods[0], ranking, task.probe, len(rows))
    layers, units = loss.size
    loss_request = LossRequest(
        loss=loss,
        substitute=constants.to(loss.device),
        rows=rows,
        valued_rows=rows_of_seed(count, valued_rows, drawn_seed),
        evaluations=entry.evaluations(ranking, layers * units),
        seed=drawn_seed,
        training=training,
        progress=context.progress,
    )
    scores_by_method = score_heads_by(methods, loss_request)
    publish_head_scores(context, scores_by_method, partition, native=is_native(task))


def _head_loss(
    context: Context,
    encoder: EncoderReference,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    frozen_probe: Step | None,
    unit: Unit,
) -> HeadLoss | None:
    """Return the loss that heads are scored by: of the native head or of a probe that a step has
    trained; None for methods that take neither.
    """
    from papa.ranking.loss_scores import ProbeLoss

    if is_native(task):
        return open_native_loss(context, encoder, corpus, task, unit)
    if frozen_probe is not None:
        probe = _load_probe(context, corpus, task, seed, frozen_probe)
        return ProbeLoss(context.loaded_encoder, probe, corpus)
    return None


def _scores_without_loss(
    methods: Sequence[str], request: ScoringRequest
) -> Mapping[str, HeadScores]:
    """Score all heads by means over rows of attention, or by what a method trains itself."""
    from papa.ranking.streamed import score_by_row_means

    functions = {method: resolve_name(SCORING_METHODS[method].function) for method in methods}
    if SCORING_METHODS[methods[0]].is_row_mean:
        return score_by_row_means(request, functions)
    return {method: score(request) for method, score in functions.items()}


def _load_probe(
    context: Context, corpus: TokenisedCorpus, task: TaskSpec, seed: int, frozen_probe: Step
) -> Probe:
    """Return the probe that a step has trained, on the encoder's device."""
    from safetensors.torch import load_file as load_tensors

    from papa.probes.evaluate import build_probe

    encoder = context.loaded_encoder
    probe = build_probe(encoder, corpus, task, [seed])
    artifact = context.artifacts[frozen_probe]
    probe.load_state_dict(load_tensors(verified(artifact, PROBE) / PROBE))
    return probe.requires_grad_(False).to(encoder.device)
