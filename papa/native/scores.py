"""Scores of the heads of a native head, of a study or in memory: one definition each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from papa.errors import NumbersError, SpecError
from papa.heads.substitutes import Substitute, Weights
from papa.models.encoder import sum_is_finite
from papa.models.layer import LayerAttention, at_least_single
from papa.native.batches import Batch, Rows
from papa.native.passes import NativeHead
from papa.native.training import NativeRequest, train_gates, train_lambda, training_spec
from papa.progress import Progress, bar, ignore_progress
from papa.ranking.head_scores import (
    EVALUATION_ROWS,
    HeadScores,
    TrainedLambda,
    rows_and_partition,
    rows_of_seed,
)
from papa.ranking.loss_scores import HeadLoss, LossRequest
from papa.ranking.orders import SCORING_METHODS
from papa.ranking.redundancy import joint_effects_of_order
from papa.ranking.streamed import RowMeans, ScoreRows, norm_preserving_maps
from papa.spec import ProbeSpec, RankingSpec
from papa.spec.orders import Head
from papa.spec.task import NATIVE_TRAINING


@torch.inference_mode()
def score_by_row_means(
    native: NativeHead,
    substitute: Substitute,
    rows: Rows,
    methods: Mapping[str, ScoreRows],
    progress: Progress = ignore_progress,
) -> dict[str, HeadScores]:
    """Return the head scores that are means over rows of attention, by method, in one pass.
    ``confidence`` leaves out separators: tokens of an encoder that equal the last of a text.

    Raises:
        SpecError: A method compares with constant matrices, and the substitute has none; or a
            layer's output projection is not known.
    """
    constants: Weights | None = None
    for name in sorted({"distance", "output_distance"} & methods.keys()):
        if not isinstance(substitute, Weights):
            raise SpecError(
                f"{name} compares attention with constant matrices, and the substitute has none: "
                "take average"
            )
        constants = substitute
    maps = None
    if "output_distance" in methods:
        maps = norm_preserving_maps(output_weights(native, next(native.texts.batches(rows[:1]))))
    means = RowMeans(methods, constants, native.size, native.device, maps, native.heads_per_unit)
    done = 0
    for batch in native.texts.batches(rows):

        def observe(attention: LayerAttention, layer: int, texts: Batch = batch) -> Tensor:
            return means.observe(attention, layer, _separators(texts, attention))

        native.observe_batch(observe, batch)
        done += len(batch.rows)
        progress(done, len(rows))
    if not sum_is_finite(means.sums):
        raise NumbersError("the model's attention", "look at its weights and texts")
    return means.scores(len(rows))


def _separators(batch: Batch, attention: LayerAttention) -> Bool[Tensor, "texts tokens"]:
    ids = batch.inputs.get("input_ids")
    is_causal = bool((attention.slots.last < 0).any())
    if not isinstance(ids, Tensor) or ids.shape != attention.slots.real.shape or is_causal:
        return torch.zeros_like(attention.slots.real)
    is_last = (attention.slots.queries == attention.slots.last[:, 0]) & attention.slots.real
    return torch.isin(ids, ids[is_last])


def output_weights(
    native: NativeHead, batch: Batch
) -> Float[Tensor, "layers heads head_width width"]:
    """Return W_O of every head: of the first linear map after a layer's attention. Raises a
    SpecError where a layer has none that takes the outputs of all heads.
    """
    layers = len(native.layers.modules)
    heads = native.heads_per_layer
    weights: dict[int, Tensor] = {}
    waiting: list[tuple[int, int]] = []  # The layer whose attention came last, and its width.

    def observe(attention: LayerAttention, layer: int) -> Tensor:
        waiting[:] = [(layer, heads * attention.value.shape[-1])]
        return attention.output(attention.all_heads)

    def take(module: nn.Module, inputs: tuple[object, ...]) -> None:
        if not waiting:
            return
        layer, width = waiting.pop()
        weight: Tensor = module.weight  # type: ignore[assignment]
        # transformers' Conv1D has its weight the other way around.
        weight = weight.T if isinstance(module, nn.Linear) else weight
        if len(weight) == width:
            weights[layer] = at_least_single(weight.detach()).unflatten(0, (heads, -1))

    linear = [module for module in native.model.modules() if isinstance(module, nn.Linear | Conv1D)]
    hooks = [module.register_forward_pre_hook(take) for module in linear]
    try:
        native.observe_batch(observe, batch)
    finally:
        for hook in hooks:
            hook.remove()
    if len(weights) < layers:
        raise SpecError(
            "output_distance needs a linear map after each layer's attention, which this "
            "model does not have: use distance"
        )
    return torch.stack([weights[layer].to(native.device) for layer in range(layers)])


def score_heads_by(methods: Sequence[str], request: LossRequest[HeadLoss]) -> dict[str, HeadScores]:
    """Score all heads by the loss of a native head or a frozen probe, for one seed: by one method,
    or by those that share a pass of a native head.
    """
    functions = {method: resolve_name(SCORING_METHODS[method].function) for method in methods}
    if SCORING_METHODS[methods[0]].is_row_mean:
        native = request.loss
        assert isinstance(native, NativeHead)
        return score_by_row_means(
            native, request.substitute, request.rows, functions, request.progress
        )
    if "gates" in functions:
        # The table names the function that trains them with a probe.
        functions["gates"] = train_gates
    return {method: function(request) for method, function in functions.items()}


def score_native_heads(
    native: NativeHead,
    method: str,
    substitute: Substitute,
    seeds: Sequence[int],
    ranking: RankingSpec,
    show_progress: bool = False,
) -> HeadScores:
    """Score all heads of a native head by one method, "lambda" or a name of
    ``papa.ranking.orders.SCORING_METHODS``, with each of the seeds.
    """
    if method == "gradient" and native.loss.compares:
        raise SpecError(
            "gradient is zero where answers are compared with the original model's: use "
            "effect, or for labels score='accuracy'"
        )
    entry = None if method == "lambda" else SCORING_METHODS[method]
    evaluations = 0 if entry is None else entry.evaluations(ranking, len(native.units))
    count = len(native.texts)
    seeds = list(dict.fromkeys(seeds))
    partitions: set[int | None] = set()
    requests: dict[object, NativeRequest] = {}
    for seed in seeds:
        rows, partition = rows_and_partition(count, ranking.rows, seed, seeds)
        if entry is not None and entry.is_row_mean and ranking.rows is None:
            rows = np.arange(count)
        partitions.add(partition)
        request = NativeRequest(
            loss=native,
            substitute=substitute,
            rows=rows,
            valued_rows=rows_of_seed(count, ranking.rows or EVALUATION_ROWS, seed),
            evaluations=evaluations,
            seed=seed,
            training=training_spec(method, ranking, ProbeSpec(**NATIVE_TRAINING), len(rows)),
        )
        request_key: object = seed
        if entry is not None and entry.is_deterministic:
            # Seeds that read the same rows, and draw nothing, have the same scores.
            request_key = (request.valued_rows if entry.evaluates_head_sets else rows).tobytes()
        requests.setdefault(request_key, request)
    by_seed: dict[int, HeadScores] = {}
    for number, request in enumerate(requests.values(), start=1):
        description = f"{method}, seed {request.seed} ({number} of {len(requests)})"
        with bar(description, show_progress, "evaluation" if evaluations else "text") as progress:
            request = replace(request, progress=progress)
            if entry is None:
                scores = HeadScores(train_lambda(request)[None])
            else:
                scores = score_heads_by([method], request)[method]
        by_seed[request.seed] = scores
    distinct_rows = len(seeds) > 1 and len(partitions) == 1 and None not in partitions
    if entry is None:
        lambdas = {seed: scores.by_seed[0] for seed, scores in by_seed.items()}
        return TrainedLambda(lambdas, distinct_rows, native=True)
    all_scores = [*by_seed.values()]
    has_interval = distinct_rows or not entry.is_trained
    return type(all_scores[0]).from_seeds(all_scores, has_interval)


def native_joint_effects(
    native: NativeHead,
    substitute: Substitute,
    order: Sequence[Head],
    keep: Sequence[float],
    rows: int | None = None,
    progress: Progress = ignore_progress,
) -> pandas.DataFrame:
    """Return what the first units of an order cost together, and pairs of its first 16.

    Args:
        native: The native head, on texts that did not decide the order.
        substitute: What heads output instead.
        order: All units, the first to become constant first.
        keep: Shares of units that stay input-dependent.
        rows: The number of texts; None takes ``EVALUATION_ROWS``.
        progress: Called with (done, total) passes.

    Returns:
        As ``joint_effects_of_order``, with ``count`` in heads, and instead of the heads of each set
        the names of a ``pair``, "" of the first units.
    """
    sample = np.sort(rows_of_seed(len(native.texts), rows or EVALUATION_ROWS, 0))
    effects = joint_effects_of_order(
        native, substitute.to(native.device), order, keep, sample, progress
    )
    pairs = [
        " + ".join(map(native.unit_name, units)) if np.isnan(fraction) else ""
        for units, fraction in zip(effects.pop("heads"), effects["fraction"], strict=True)
    ]
    return effects.assign(count=effects["count"] * native.heads_per_unit, pair=pairs)
