"""How well scores of heads find the planted heads, what they cost, what their intervals hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time

import numpy as np
import pandas
import torch
from captum.attr import LayerIntegratedGradients
from torch import Tensor, nn
from transformers import BertModel, PreTrainedModel
from transformers.utils import ModelOutput

import papa
from benchmarks.planted.training import (
    HEADS,
    ModelRequest,
    PlantedModel,
    entries_of_head,
    holds_what_was_planted,
    output_maps,
    verified_model,
)

TEXTS = 64
"""Texts that heads are scored on."""
FRESH_TEXTS = 512
"""Texts for the value that an interval should hold.

As that value has an error of its own, at most 94 % of intervals at 95 % hold it.
"""
SEEDS = (0, 1, 2)
"""What head scores are means over, as in ``papa.head_scores``."""
FRESH_SEEDS = tuple(range(3, 12))
"""Seeds for the value that an interval over seeds should hold."""
EVALUATIONS = 40
"""How often Shapley values and the greedy order may value a set of heads, for each seed."""
METHODS = (
    "lambda",
    "effect",
    "gradient",
    "shapley",
    "greedy",
    "gates",
    "causal_gates",
    "distance",
    "output_distance",
    "confidence",
    "first_token_attention",
    "output_norm",
)
SUBSTITUTES = (
    "average",
    "zeros",
    "mean_output",
    "relative",
    "resampled_output",
    "identity",
    "first",
    "previous",
    "next",
    "local",
    "toeplitz",
    "fibonacci",
)
UNTRAINED_BY_SUBSTITUTE = frozenset({"effect", "gradient"})
"""The methods that are scored with every substitute."""
TRAINED_BY_SUBSTITUTE = frozenset({"lambda", "gates"})
"""The methods that are scored with ``SUBSTITUTES_TO_TRAIN``.

Shapley values, the greedy order and causal gates depend on it too, but take most of the time.
"""
SUBSTITUTES_TO_TRAIN = ("average", "zeros", "mean_output")
IS_MEAN_OVER_TEXTS = frozenset(
    {
        "effect",
        "gradient",
        "distance",
        "output_distance",
        "confidence",
        "first_token_attention",
        "output_norm",
    }
)
"""The methods whose score is a mean over texts, so that fresh texts say what its interval should
hold.
"""
IS_TRAINED_ON_SHARES = frozenset({"lambda", "gates"})
"""The methods whose seeds divide the texts among them: fresh seeds, with as many fresh texts each,
say what the interval should hold. Causal gates are such too, but take most of the time.
"""

CAPTUM = "captum LayerIntegratedGradients"
STEPS_OF_CAPTUM = 20
"""On the way from one output to the other: with 50, captum's default, no score of the three models
that were tried differed by more than 0.1 % of the largest.
"""

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class ScoredModel:
    """One method on one planted model.

    Attributes:
        auroc: the probability that a needed head has a higher score than another; NaN if the
            substitute needs no head or all.
        coverage: the share of heads whose interval holds the score on fresh texts, or NaN.
        passes: how often the texts went through the model's layers.
        seconds: of one core.
    """

    kind: str
    output: str
    layers: int
    seed: int
    method: str
    substitute: str
    auroc: float
    coverage: float
    passes: float
    seconds: float


@dataclass
class Cost:
    """What a block took: how many texts went through the model, and seconds of one core."""

    texts: float = 0.0
    seconds: float = 0.0


def area_under_curve(scores: np.ndarray, is_needed: np.ndarray) -> float:
    """Return the area under the ROC curve: pairs in the right order, ties as half."""
    needed = scores[is_needed]
    others = scores[~is_needed]
    if needed.size == 0 or others.size == 0:
        return float("nan")
    differences = needed[:, None] - others[None, :]
    return float(np.mean((differences > 0) + 0.5 * (differences == 0)))


def batches(
    planted: PlantedModel, texts: int, seed: int, *, with_labels: bool = False
) -> list[Batch]:
    """Return texts as the user of a model would pass them: with labels of words only, or of all.

    Of a text that a decoder learned to continue, the beginning has no label: it cannot be foretold.
    """
    ids, labels = planted.kind.draw(texts, torch.Generator().manual_seed(seed))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if with_labels or planted.kind.output in ("masked words", "next words"):
        inputs["labels"] = labels
    starts = range(0, texts, 32)
    return [{name: value[start : start + 32] for name, value in inputs.items()} for start in starts]


def needed_mask(planted: PlantedModel, substitute: str) -> np.ndarray:
    """Return whether each head is needed where ``substitute`` is what the others get: [layers,
    heads].
    """
    mask = np.zeros((len(output_maps(planted.model)), HEADS), dtype=bool)
    for head in planted.kind.needed_heads(substitute):
        mask[head] = True
    return mask


@contextmanager
def measured_cost(model: PreTrainedModel) -> Iterator[Cost]:
    """Measure a block: what it cost is known once it ends.

    Passes that reuse the outputs of lower layers count only for the layers that they run.
    """
    maps = output_maps(model)
    cost = Cost()
    rows = 0

    def count(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        nonlocal rows
        rows += inputs[0].shape[0]

    hooks = [output_map.register_forward_pre_hook(count) for output_map in maps]
    start = process_time()
    try:
        yield cost
    finally:
        cost.seconds = process_time() - start
        cost.texts = rows / len(maps)
        for hook in hooks:
            hook.remove()


def score_matrix(frame: pandas.DataFrame, column: str = "score") -> np.ndarray:
    """Return a column of a frame of head scores as [layers, heads]."""
    return frame.sort_values(["layer", "head"])[column].to_numpy().reshape(-1, HEADS)


def head_scores(
    planted: PlantedModel,
    method: str,
    substitute: str,
    texts: int,
    drawn_with: int,
    seeds: Sequence[int] = SEEDS,
    rows: int | None = None,
) -> pandas.DataFrame:
    """Score the heads by a method of PAPA, with a substitute that comes of the first texts.

    The gradient of a classifier follows its labels: that of its divergence from itself is zero.
    """
    with_labels = method == "gradient" and planted.kind.output in ("classes", "tags")
    return papa.head_scores(
        planted.model,
        batches(planted, texts, drawn_with, with_labels=with_labels),
        method=method,
        substitute=substitute,
        substitute_data=batches(planted, TEXTS, seed=1),
        score="accuracy" if with_labels else None,
        ranking_seeds=seeds,
        rows=rows,
        evaluations=EVALUATIONS,
        progress=False,
    )


def true_scores(planted: PlantedModel, method: str) -> np.ndarray | None:
    """Return what a method's intervals should hold, [layers, heads], with the average as
    substitute; None if that is unknown.
    """
    if method in IS_MEAN_OVER_TEXTS:
        frame = head_scores(planted, method, "average", FRESH_TEXTS, drawn_with=2, rows=FRESH_TEXTS)
    elif method in IS_TRAINED_ON_SHARES:
        texts = TEXTS // len(SEEDS) * len(FRESH_SEEDS)
        frame = head_scores(planted, method, "average", texts, drawn_with=2, seeds=FRESH_SEEDS)
    elif method == "shapley":
        # Its interval is over the orders that are drawn, of the same texts.
        frame = head_scores(planted, method, "average", TEXTS, drawn_with=1, seeds=FRESH_SEEDS)
    else:
        return None
    return score_matrix(frame)


def scored_by_papa(planted: PlantedModel, method: str, substitute: str) -> ScoredModel:
    """Score the heads by a method of PAPA."""
    with measured_cost(planted.model) as cost:
        frame = head_scores(planted, method, substitute, TEXTS, drawn_with=1)
    coverage = float("nan")
    truth = true_scores(planted, method) if substitute == "average" else None
    if truth is not None:
        holds = (score_matrix(frame, "low") <= truth) & (truth <= score_matrix(frame, "high"))
        coverage = float(holds.mean())
    auroc = area_under_curve(score_matrix(frame), needed_mask(planted, substitute))
    return scored_model(planted, method, substitute, auroc, cost, coverage)


def scored_model(
    planted: PlantedModel,
    method: str,
    substitute: str,
    auroc: float,
    cost: Cost,
    coverage: float = float("nan"),
) -> ScoredModel:
    """Return the result of one method, with what it was computed on."""
    return ScoredModel(
        kind=planted.kind.name,
        output=planted.kind.output,
        layers=len(output_maps(planted.model)),
        seed=planted.seed,
        method=method,
        substitute=substitute,
        auroc=auroc,
        coverage=coverage,
        passes=cost.texts / TEXTS,
        seconds=cost.seconds,
    )


def head_outputs_and_gradients(
    planted: PlantedModel, ids: Tensor, embeddings: Tensor, original: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return what the heads of each layer put out, and the gradient of the divergence from
    ``original``.

    Args:
        ids: token ids [texts, tokens].
        embeddings: what takes the place of their embeddings, [texts, tokens, width].
        original: log-probabilities (or states) of the unchanged texts.
    """
    kept: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        kept.append(inputs[0])

    model = planted.model
    hooks = [each.register_forward_pre_hook(keep) for each in output_maps(model)]
    try:
        outputs = model(inputs_embeds=embeddings, attention_mask=torch.ones_like(ids))
        loss = divergences(model, answer(model, outputs), original).sum()
    finally:
        for hook in hooks:
            hook.remove()
    gradients = torch.autograd.grad(loss, kept)
    return [each.detach() for each in kept], list(gradients)


def answer(model: PreTrainedModel, outputs: ModelOutput) -> Tensor:
    """Return log-probabilities of a model with a head; mean embeddings of one without."""
    if isinstance(model, BertModel):
        return outputs["last_hidden_state"].mean(1)
    return outputs["logits"].log_softmax(-1)


def divergences(model: PreTrainedModel, answers: Tensor, original: Tensor) -> Tensor:
    """Return for each text Σ KL of log-probabilities, or the squared distance of embeddings."""
    if isinstance(model, BertModel):
        return (answers - original).square().flatten(1).sum(1)
    return (original.exp() * (original - answers)).flatten(1).sum(1)


def integrated_gradients(planted: PlantedModel, ids: Tensor, other: Tensor, steps: int) -> Tensor:
    """Compute EAP-IG of each head (Hanna et al. 2024, arXiv 2403.17806), [layers, heads].

    Token embeddings go from those of another text to the text's own in ``steps`` steps; a head's
    score is |Σ (its output on the other text - on this one) · mean gradient|, averaged over texts.
    """
    model = planted.model
    table: nn.Module = model.get_input_embeddings()
    own_embeddings = table(ids).detach()
    other_embeddings = table(other).detach()
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids))
        original = answer(model, outputs)
    total: list[Tensor] = []
    for step in range(1, steps + 1):
        mixed = other_embeddings + (step - 0.5) / steps * (own_embeddings - other_embeddings)
        _, gradients = head_outputs_and_gradients(planted, ids, mixed.requires_grad_(), original)
        total = [a + b for a, b in zip(total, gradients, strict=True)] if total else gradients
    own_outputs, _ = head_outputs_and_gradients(
        planted, ids, own_embeddings.clone().requires_grad_(), original
    )
    other_outputs, _ = head_outputs_and_gradients(
        planted, ids, other_embeddings.clone().requires_grad_(), original
    )
    scores = torch.zeros(len(total), HEADS)
    for layer, gradient in enumerate(total):
        product = (other_outputs[layer] - own_outputs[layer]) * gradient / steps
        for head in range(HEADS):
            scores[layer, head] = product[..., entries_of_head(head)].sum((1, 2)).abs().mean()
    return scores


def scored_by_integrated_gradients(planted: PlantedModel) -> ScoredModel:
    """Score the heads by EAP-IG with five steps, as its authors do."""
    ids, _ = planted.kind.draw(TEXTS, torch.Generator().manual_seed(1))
    with measured_cost(planted.model) as cost:
        scores = integrated_gradients(planted, ids, ids.roll(1, 0), steps=5)
    # The outputs of other texts take the heads' place: what a resampled output does.
    auroc = area_under_curve(scores.numpy(), needed_mask(planted, "resampled_output"))
    return scored_model(planted, "EAP-IG", "resampled_output", auroc, cost)


def captum_scores(planted: PlantedModel, ids: Tensor, other: Tensor) -> Tensor:
    """Compute captum's layer integrated gradients of each head's output, [layers, heads].

    What all heads of a layer output goes from its value on another text to that on this one. A
    head's score is |Σ over tokens and width| of what it adds to the divergence, averaged over
    texts. EAP-IG moves the token embeddings instead, and so all layers at once.
    """
    model = planted.model
    table: nn.Module = model.get_input_embeddings()
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids))
        original = answer(model, outputs)

    def divergence_of_texts(embeddings: Tensor, unchanged: Tensor) -> Tensor:
        mask = torch.ones(embeddings.shape[:2], dtype=torch.int64)
        answers = answer(model, model(inputs_embeds=embeddings, attention_mask=mask))
        return divergences(model, answers, unchanged)

    scores: list[Tensor] = []
    for output_map in output_maps(model):
        attributed = LayerIntegratedGradients(divergence_of_texts, output_map).attribute(
            table(ids).detach(),
            baselines=table(other).detach(),
            additional_forward_args=(original,),
            n_steps=STEPS_OF_CAPTUM,
            attribute_to_layer_input=True,
        )
        by_head = attributed.detach().unflatten(-1, (HEADS, -1)).sum((1, 3))
        scores.append(by_head.abs().mean(0))
    return torch.stack(scores)


def scored_by_captum(planted: PlantedModel) -> ScoredModel:
    """Score the heads by captum's layer integrated gradients."""
    ids, _ = planted.kind.draw(TEXTS, torch.Generator().manual_seed(1))
    with measured_cost(planted.model) as cost:
        scores = captum_scores(planted, ids, ids.roll(1, 0))
    auroc = area_under_curve(scores.numpy(), needed_mask(planted, "resampled_output"))
    return scored_model(planted, CAPTUM, "resampled_output", auroc, cost)


def scored_at_random(planted: PlantedModel, substitute: str) -> ScoredModel:
    """Score the heads by random numbers, the baseline of every method."""
    is_needed = needed_mask(planted, substitute)
    draws = np.random.default_rng(0).random((100, is_needed.size))
    areas = [area_under_curve(scores, is_needed.ravel()) for scores in draws]
    return scored_model(planted, "random", substitute, float(np.mean(areas)), Cost())


def depends_on(method: str, substitute: str) -> bool:
    """Return whether a method is scored with this substitute."""
    if method in UNTRAINED_BY_SUBSTITUTE:
        return True
    if method in TRAINED_BY_SUBSTITUTE:
        return substitute in SUBSTITUTES_TO_TRAIN
    return substitute == "average"


def scored(planted: PlantedModel) -> Iterator[ScoredModel]:
    """Yield every score of heads on one model, with every substitute that it depends on.

    A substitute is left out if the planted heads are not what the model needs under it: a model
    may rely on what its decoys write on average, or on decoys for a part of the job.
    """
    for substitute in SUBSTITUTES:
        if not holds_what_was_planted(planted, substitute):
            continue
        for method in METHODS:
            if depends_on(method, substitute):
                try:
                    yield scored_by_papa(planted, method, substitute)
                except papa.PapaError as error:
                    print(f"  {method}, {substitute}: {error}", flush=True)
        yield scored_at_random(planted, substitute)
    if holds_what_was_planted(planted, "resampled_output"):
        yield scored_by_integrated_gradients(planted)
        yield scored_by_captum(planted)


def train_and_score(request: ModelRequest) -> list[ScoredModel]:
    """Return every score of heads on one model; none if it never held what was planted."""
    torch.set_num_threads(1)
    planted = verified_model(request)
    if planted is None:
        print(f"{request}: not learned, left out", flush=True)
        return []
    print(f"{request}: loss {planted.loss:.3f}", flush=True)
    return list(scored(planted))
