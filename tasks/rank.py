"""The stages that score heads, and ``frozen_probe``, which trains the probe that some read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from papa.models.reference import EncoderReference
from papa.ranking.orders import HEAD_SCORES
from papa.ranking.seeds import HeadScores, TrainedLambda, order_of_rows
from papa.spec import RankingSpec, TaskSpec
from papa.storage.artifacts import ArtifactReference, read_metadata, verified
from papa.tasks.step import Context, Step, stage

LAMBDA, PROBE, SCORES = "lambda.safetensors", "probe.safetensors", "scores.safetensors"
ERROR = "{} ± 1"
"""The standard error of a method's values, which are by its name."""


@stage("rank", version=10)
def rank(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    constants: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    seed: int,
    shuffled: bool = False,
) -> None:
    """Train λ on a task's training text: with a probe, or on what the model's own head answers;
    ``shuffled`` shuffles its labels by the seed.
    """
    from papa.heads.constants import ConstantMatrices
    from papa.ranking.learned import train_lambda

    text = replace(run.corpus(corpus), shuffled=seed) if shuffled else run.corpus(corpus)
    asked: Any = {"seed": seed, "progress": run.progress, "on_epoch": run.on_epoch}
    model = run.own_model(task, encoder) if task.head == "own" else run.encoder
    matrices = ConstantMatrices.load(run.found[constants], encoder=encoder, slots=task.slots)
    lambdas = train_lambda(model, matrices, text, task, ranking, **asked)
    order = order_of_rows(len(text.split("train")), ranking.rows, seed)
    with run.published(epochs=len(lambdas), order_of_rows=order) as folder:
        by_epoch = lambdas.detach().cpu().numpy()
        save_file({"lambda": by_epoch[-1].copy(), "lambda_by_epoch": by_epoch}, folder / LAMBDA)


@stage("frozen_probe", version=2)
def frozen_probe(
    run: Context, encoder: EncoderReference, corpus: Step, task: TaskSpec, seed: int
) -> None:
    """Train the probe of one seed; the methods that read it share it."""
    from safetensors.torch import save_file as save_tensors

    from papa.probes.evaluate import train_probe

    with run.asked() as asked:
        probe = train_probe(run.encoder, run.corpus(corpus), task, [seed], **asked)
    with run.published() as folder:
        save_tensors(probe.state_dict(), folder / PROBE)


@stage("scores", version=7)
def score_heads(
    run: Context,
    encoder: EncoderReference,
    corpus: Step,
    constants: Step,
    task: TaskSpec,
    ranking: RankingSpec,
    methods: tuple[str, ...],
    seed: int | None,
    probe: Step | None = None,
) -> None:
    """Score all heads by methods that share a pass over a text; without a seed nothing is drawn."""
    from safetensors.torch import load_file as load_tensors

    from papa.heads.constants import ConstantMatrices
    from papa.probes.evaluate import build_probe
    from papa.ranking.sets import Asked
    from papa.ranking.streamed import streamed

    text, frozen = run.corpus(corpus), None
    if probe:
        frozen = build_probe(run.encoder, text, task, [seed or 0])
        frozen.load_state_dict(load_tensors(verified(run.found[probe], PROBE) / PROBE))
        frozen.requires_grad_(False).to(run.encoder.device)
    matrices = ConstantMatrices.load(run.found[constants], encoder=encoder, slots=task.slots)
    answering = not HEAD_SCORES[methods[0]].label_free and task.head == "own"
    own = run.own_model(task, encoder) if answering else None
    how = seed or 0, run.execution, run.progress, frozen, own
    asked = Asked(run.encoder, matrices, text, task, ranking, *how)
    functions = {name: resolve_name(HEAD_SCORES[name].function) for name in methods}
    if HEAD_SCORES[methods[0]].streamed:
        found = streamed(asked, functions)
    else:
        found = {name: score(asked) for name, score in functions.items()}
    tensors: dict[str, Any] = {name: scores.by_seed[0] for name, scores in found.items()}
    tensors |= {ERROR.format(name): scores.standard_error for name, scores in found.items()}
    held = {name: np.ascontiguousarray(one) for name, one in tensors.items() if one is not None}
    evaluations = {name: scores.evaluations for name, scores in found.items()}
    draws = {name: scores.draws for name, scores in found.items()}
    with run.published(evaluations=evaluations, draws=draws) as folder:
        save_file(held, folder / SCORES)


def read_head_scores(
    method: str,
    rankings: Mapping[int, ArtifactReference],
    controls: Mapping[int, ArtifactReference] = MappingProxyType({}),
) -> HeadScores | TrainedLambda:
    """The scores of all heads from finished rankings by seed, and ``controls`` of "lambda"."""
    if method == "lambda":
        orders = {read_metadata(ranking.path).get("order_of_rows") for ranking in rankings.values()}
        by_epoch, shuffled = (
            {seed: load_file(verified(one) / LAMBDA)["lambda_by_epoch"] for seed, one in of.items()}
            for of in (rankings, controls)
        )
        own_rows = len(orders) == 1 and None not in orders
        return TrainedLambda(by_epoch, own_rows=own_rows, shuffled=shuffled)
    found = [load_file(verified(ranking) / SCORES) for ranking in rankings.values()]
    values, error = np.stack([tensors[method] for tensors in found]), ERROR.format(method)
    if len(found) > 1 or error not in found[0]:
        return HeadScores(values)
    (ranking,) = rankings.values()
    return HeadScores(values, found[0][error], int(read_metadata(ranking.path)["draws"][method]))
