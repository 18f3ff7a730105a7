"""Rank: a score for every head. The head with the smallest score becomes constant first.

``train_lambda`` trains λ (paper, Section 3.2); ``score_heads`` computes the other methods
(``papa.ranking.orders``), some of which read a probe that ``train_frozen_probe`` trains first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from papa.models.reference import EncoderReference
from papa.ranking.orders import HEAD_SCORES
from papa.ranking.seeds import HeadScores, TrainedLambda, order_of_rows
from papa.spec import RankingSpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata, verified
from papa.tasks.step import Context, Step, stage

if TYPE_CHECKING:
    from papa.models.encoder import Encoder
    from papa.probes.own import OwnHead
    from papa.probes.probes import Probe

LAMBDA, PROBE, SCORES = "lambda.safetensors", "probe.safetensors", "scores.safetensors"
STANDARD_ERROR = "{} ± 1"
"""The name of a method's standard error, in the file that holds its values by its name."""


@stage("train_lambda", version=10)
def train_lambda(
    context: Context,
    encoder: EncoderReference,
    text: Step,
    average: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    seed: int,
    shuffled: bool = False,
) -> None:
    """Train λ of every head, with B = λA + (1 - λ)C, on a task's training text.

    In: the tokenised text, the task's own average C, and the encoder. Out: λ after every epoch,
    [epochs, L, H]. Where: a worker.

    Args:
        context: What the body may use.
        encoder: The encoder.
        text: The tokenised text.
        average: The average over the task's own text.
        task: What decides the loss: a probe's, or that of the model's native head.
        ranking: Rows, epochs and learning rate.
        seed: Decides the rows, their order, and the probe's start.
        shuffled: Whether labels are shuffled by the seed, for the control.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.ranking import learned

    corpus = context.open_text(text)
    if shuffled:
        corpus = replace(corpus, shuffled=seed)
    model: Encoder | OwnHead
    if task.head == "native":
        model = context.open_native_head(task, encoder)
    else:
        model = context.loaded_encoder
    lambda_by_epoch = learned.train_lambda(
        model,
        ConstantMatrices.load(context.artifacts[average], encoder=encoder, slots=task.slots),
        corpus,
        task,
        ranking,
        seed=seed,
        progress=context.progress,
        on_epoch=context.on_epoch,
    )
    values = lambda_by_epoch.detach().cpu().numpy()
    order = order_of_rows(len(corpus.split("train")), ranking.rows, seed)
    with context.published(epochs=len(values), order_of_rows=order) as folder:
        save_file({"lambda": values[-1].copy(), "lambda_by_epoch": values}, folder / LAMBDA)


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
            context.open_text(text),
            task,
            [seed],
            scratch,
            context.execution,
            progress=context.progress,
        )
    with context.published() as folder:
        save_tensors(probe.state_dict(), folder / PROBE)


@stage("score_heads", version=7)
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
) -> None:
    """Score all heads by methods that share a pass over the training text.

    In: the tokenised text, the task's own average, the encoder, and for some methods a probe. Out:
    [L, H] by method, with standard errors where the method has them. Where: a worker.

    Args:
        context: What the body may use.
        encoder: The encoder.
        text: The tokenised text.
        average: The average over the task's own text.
        task: What decides the loss, of methods that read one.
        ranking: Rows, and the settings that the methods read.
        methods: Names of ``HEAD_SCORES``.
        seed: Decides rows and draws; None where nothing is drawn.
        frozen_probe: The probe that the methods read.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.ranking.sets import Asked
    from papa.ranking.streamed import streamed

    first = HEAD_SCORES[methods[0]]
    # A label-free method is given no ``head`` of the task.
    answers_task = not first.label_free and task.head == "native"
    request = Asked(
        encoder=None if answers_task else context.loaded_encoder,
        constants=ConstantMatrices.load(
            context.artifacts[average], encoder=encoder, slots=task.slots
        ),
        corpus=context.open_text(text),
        task=task,
        ranking=ranking,
        seed=seed or 0,
        execution=context.execution,
        progress=context.progress,
        probe=_load_probe(context, text, task, seed or 0, frozen_probe),
        own=context.open_native_head(task, encoder) if answers_task else None,
    )
    functions = {method: resolve_name(HEAD_SCORES[method].function) for method in methods}
    if first.streamed:
        scores_by_method = streamed(request, functions)
    else:
        scores_by_method = {method: score(request) for method, score in functions.items()}
    tensors = {}
    for method, scores in scores_by_method.items():
        tensors[method] = np.ascontiguousarray(scores.by_seed[0])
        if scores.standard_error is not None:
            error = np.ascontiguousarray(scores.standard_error)
            tensors[STANDARD_ERROR.format(method)] = error
    with context.published(
        evaluations={method: scores.evaluations for method, scores in scores_by_method.items()},
        draws={method: scores.draws for method, scores in scores_by_method.items()},
    ) as folder:
        save_file(tensors, folder / SCORES)


def _load_probe(
    context: Context, text: Step, task: TaskSpec, seed: int, frozen_probe: Step | None
) -> Probe | None:
    """The probe that a step has trained, on the encoder's device."""
    from safetensors.torch import load_file as load_tensors

    from papa.probes.evaluate import build_probe

    if frozen_probe is None:
        return None
    encoder = context.loaded_encoder
    probe = build_probe(encoder, context.open_text(text), task, [seed])
    artifact = context.artifacts[frozen_probe]
    probe.load_state_dict(load_tensors(verified(artifact, PROBE) / PROBE))
    return probe.requires_grad_(False).to(encoder.device)


def read_head_scores(
    method: str,
    rankings: Mapping[int, ArtifactReference],
    controls: Mapping[int, ArtifactReference] = MappingProxyType({}),
) -> HeadScores | TrainedLambda:
    """Read the scores of all heads from finished rankings.

    Args:
        method: "lambda", or a name of ``HEAD_SCORES``.
        rankings: The finished rankings, by ranking seed.
        controls: Of "lambda": those trained on shuffled labels, by ranking seed.
    """
    if method == "lambda":
        orders = {read_metadata(ranking.path).get("order_of_rows") for ranking in rankings.values()}
        return TrainedLambda(
            _lambda_by_epoch(rankings),
            # Seeds see different rows where each draws from the same number of them.
            own_rows=len(orders) == 1 and None not in orders,
            shuffled=_lambda_by_epoch(controls),
        )
    tensors_by_seed = [load_file(verified(ranking) / SCORES) for ranking in rankings.values()]
    values = np.stack([tensors[method] for tensors in tensors_by_seed])
    error = STANDARD_ERROR.format(method)
    if len(tensors_by_seed) > 1 or error not in tensors_by_seed[0]:
        return HeadScores(values)
    (ranking,) = rankings.values()
    draws = int(read_metadata(ranking.path)["draws"][method])
    return HeadScores(values, tensors_by_seed[0][error], draws)


def _lambda_by_epoch(rankings: Mapping[int, ArtifactReference]) -> dict[int, np.ndarray]:
    return {
        seed: load_file(verified(ranking) / LAMBDA)["lambda_by_epoch"]
        for seed, ranking in rankings.items()
    }
