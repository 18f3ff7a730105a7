"""Rank: a score for every head. The head with the smallest score becomes constant first.

``train_lambda`` trains λ (paper, Section 3.2); ``score_heads`` computes the other methods
(``papa.ranking.orders``), some of which read a probe that ``train_frozen_probe`` trains first.
"""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from papa.models.reference import EncoderReference
from papa.ranking.head_scores import (
    VALUED_ROWS,
    HeadScores,
    divided_rows,
    rows_of_seed,
    shuffle_seed_of,
)
from papa.ranking.orders import HEAD_SCORES
from papa.spec import ProbeSpec, RankingSpec, TaskSpec
from papa.spec.orders import Unit
from papa.storage.artifacts import verified
from papa.tasks.context import Context, is_native
from papa.tasks.head_scores import LAMBDA, publish_head_scores
from papa.tasks.step import Step, stage
from papa.text.corpus import TokenisedCorpus, open_corpus
from papa.text.sources import Split

if TYPE_CHECKING:
    from papa.heads.constants import ConstantMatrices
    from papa.native.passes import NativeHead
    from papa.probes.probes import Probe

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
    the control. In: the tokenised text, the task's own average C, and the encoder. Out: λ after
    every epoch, [epochs, L, H]. Where: a worker.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.native import training
    from papa.ranking import learned
    from papa.ranking.loss_scores import LossRequest

    corpus = open_corpus(context.artifacts[text])
    if shuffled:
        corpus = replace(corpus, shuffled=seed)
    rows = len(corpus.split("train"))
    shuffle_seed = shuffle_seed_of(rows, ranking.rows, seed)
    constants = ConstantMatrices.load(context.artifacts[average])
    if task.head == "native":
        native = open_native_loss(context, encoder, corpus, task, unit)
        rows_of_native, shuffle_seed = divided_rows(rows, ranking.rows, seed, rows_divided_by)
        request = LossRequest(
            loss=native,
            substitute=constants.to(native.device),
            rows=rows_of_native,
            valued_rows=rows_of_native,
            evaluations=0,
            seed=seed,
            training=task.probe,
            progress=context.progress,
        )
        values = training.train_lambda(request, context.on_epoch).astype(np.float32)
    else:
        lambda_by_epoch = learned.train_lambda(
            context.loaded_encoder,
            constants,
            corpus,
            task,
            rows=ranking.rows,
            seed=seed,
            progress=context.progress,
            on_epoch=context.on_epoch,
        )
        values = lambda_by_epoch.detach().cpu().numpy()
    with context.published(
        epochs=len(values), order_of_rows=shuffle_seed, native=task.head == "native"
    ) as folder:
        save_file({"lambda": values[-1].copy(), "lambda_by_epoch": values}, folder / LAMBDA)


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

    from papa.probes.evaluate import train_probe

    with context.scratch_folder() as scratch:
        probe = train_probe(
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
    from papa.ranking.loss_scores import ScoringRequest
    from papa.ranking.streamed import score_by_row_means

    entry = HEAD_SCORES[methods[0]]
    corpus = open_corpus(context.artifacts[text])
    constants = ConstantMatrices.load(context.artifacts[average])
    functions = {method: resolve_name(HEAD_SCORES[method].function) for method in methods}
    count = len(corpus.split("train"))
    rows, shuffle_seed = divided_rows(count, ranking.rows, seed or 0, rows_divided_by)
    if entry.values_sets:
        shuffle_seed = shuffle_seed_of(count, ranking.rows or VALUED_ROWS, seed or 0)
    if is_native(task):
        native = open_native_loss(context, encoder, corpus, task, unit)
        scores_by_method = _score_native_head(
            context, native, constants, task, ranking, methods, seed or 0, rows
        )
    else:
        request = ScoringRequest(
            encoder=context.loaded_encoder,
            constants=constants,
            corpus=corpus,
            task=task,
            ranking=ranking,
            seed=seed or 0,
            execution=context.execution,
            progress=context.progress,
        )
        if entry.streamed:
            scores_by_method = score_by_row_means(request, functions)
        elif frozen_probe is not None:
            probe = _load_probe(context, text, task, seed or 0, frozen_probe)
            units = encoder.layers * encoder.heads
            by_loss = request.by_loss_of(probe, entry.evaluations(ranking, units))
            scores_by_method = {method: score(by_loss) for method, score in functions.items()}
        else:
            scores_by_method = {method: score(request) for method, score in functions.items()}
    publish_head_scores(context, scores_by_method, shuffle_seed)


def _score_native_head(
    context: Context,
    native: NativeHead,
    constants: ConstantMatrices,
    task: TaskSpec,
    ranking: RankingSpec,
    methods: tuple[str, ...],
    seed: int,
    rows: np.ndarray,
) -> dict[str, HeadScores]:
    """Score the heads of a native head on some rows, by methods that share a pass."""
    from papa.native.scores import score_heads_by
    from papa.native.training import training_spec
    from papa.ranking.loss_scores import LossRequest

    entry = HEAD_SCORES[methods[0]]
    spec: ProbeSpec | None = None
    if "epochs" in entry.reads:
        spec = training_spec(methods[0], ranking, task.probe, len(rows))
    request = LossRequest(
        loss=native,
        substitute=constants.to(native.device),
        rows=rows,
        valued_rows=rows_of_seed(len(native.texts), ranking.rows or VALUED_ROWS, seed),
        evaluations=entry.evaluations(ranking, len(native.units)),
        seed=seed,
        training=spec,
        progress=context.progress,
    )
    return score_heads_by(methods, request)


def _load_probe(
    context: Context, text: Step, task: TaskSpec, seed: int, frozen_probe: Step
) -> Probe:
    """Return the probe that a step has trained, on the encoder's device."""
    from safetensors.torch import load_file as load_tensors

    from papa.probes.evaluate import build_probe

    encoder = context.loaded_encoder
    probe = build_probe(encoder, open_corpus(context.artifacts[text]), task, [seed])
    artifact = context.artifacts[frozen_probe]
    probe.load_state_dict(load_tensors(verified(artifact, PROBE) / PROBE))
    return probe.requires_grad_(False).to(encoder.device)
