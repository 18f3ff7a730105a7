"""Head scores of an in-memory model: the effect of single heads, and λ on mini-batches of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from papa.errors import NumbersError
from papa.heads.attention_layers import attention_layers
from papa.heads.substitutes import Mixed, Substitute
from papa.library.ablating import (
    ablated,
    answers,
    compared,
    kl_divergence,
    of_batch,
)
from papa.library.batches import (
    Batch,
    alike_texts,
    joined_texts,
)
from papa.probes.training import train_theta
from papa.progress import bar
from papa.ranking.seeds import HeadScores, TrainedLambda
from papa.scores.answers import mean_over_examples
from papa.scores.custom import CustomScore
from papa.spec import ProbeSpec

EPOCHS, LEARNING_RATE = 3, 0.05
"""Of λ on an in-memory model."""
MINI_BATCH = 4
"""Texts of a step. Seeds divide the texts among them: more texts a step would leave few steps."""
LEAST_TEXTS = 8
"""Of each seed, for an interval: seeds of 2 to 4 texts push λ one of two ways, all of them the same
way by chance, and such intervals held the truth in .78 of cases (``benchmarks.certainty``).
"""
FARTHEST = 4.0
"""How far logits are pulled."""


def effects(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    score: CustomScore | None,
    progress: bool,
) -> pandas.DataFrame:
    """What is lost of the answers with each head alone replaced, with its interval over texts."""
    heads = [(layer, head) for layer, own in every_head(model).items() for head in own]
    before, rows, measure = answers(model, batches, score), list[tuple[Any, ...]](), ""
    with bar("effects of heads", progress) as report:
        for done, (layer, head) in enumerate(heads, 1):
            with ablated(model, [(layer, head)], substitute=substitute):
                measure, lost = _lost(before, answers(model, batches, score))
            if not np.isfinite(lost).all():
                what = f"the model's answers with head {(layer, head)} replaced"
                raise NumbersError(what, "look at its weights and texts")
            found = mean_over_examples(measure, lost, before["lengths"])
            rows.append((layer, head, "effect", found.mean, found.low, found.high))
            report(done, len(heads))
    frame = pandas.DataFrame(rows, columns=["layer", "head", "method", "score", "low", "high"])
    frame.attrs["measure"] = measure.partition("_")[0]
    return frame


def _lost(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> tuple[str, Shaped[np.ndarray, " answers"]]:
    """The measure, and what is lost of each answer; of agreement whether it is."""
    if "embeddings" in before:
        first, second = (one["embeddings"].astype(np.float64) for one in (before, after))
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return "cosine_lost", 1 - (first * second).sum(1) / np.maximum(lengths, 1e-12)
    values = compared(before, after)
    for name in ("score_difference", "loss_difference", "divergence"):
        if name in values:
            return name, values[name].astype(np.float64) * (-1 if "score" in name else 1)
    return "agreement", ~values["agreement"]


def every_head(model: nn.Module) -> dict[int, range]:
    """By layer, as the model numbers its layers."""
    counts = attention_layers(model).head_counts
    return {layer: range(count) for layer, count in enumerate(counts) if count}


def numbered(model: nn.Module, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Scores of layers with attention, by the model's numbers of these layers."""
    return frame.assign(layer=np.array([*every_head(model)])[frame["layer"]])


def lambda_of(
    model: nn.Module,
    texts: Sequence[Batch],
    substitute: Substitute,
    epochs: int | None,
    learning_rate: float | None,
    seeds: Sequence[int],
    progress: bool,
) -> TrainedLambda:
    """λ of an in-memory model, trained once with each seed on rows of its own."""
    by_epoch: dict[int, np.ndarray] = {}
    for seed, rows in zip(seeds, rows_by_seed(len(texts), seeds), strict=True):
        by_step = trained_shares(
            model,
            [texts[row] for row in rows],
            substitute,
            epochs or EPOCHS,
            learning_rate or LEARNING_RATE,
            seed,
            progress,
        )
        by_epoch[seed] = by_step[-1:]
    return TrainedLambda(by_epoch, own_rows=has_own_rows(len(texts), seeds))


def frame_of(trained: TrainedLambda) -> pandas.DataFrame:
    """λ of every head; without an interval where seeds do not have rows of their own."""
    scores = trained if trained.own_rows else HeadScores(trained.mean[None])
    return scores.frame("lambda")


def has_own_rows(texts: int, seeds: Sequence[int]) -> bool:
    return len(seeds) > 1 and texts >= LEAST_TEXTS * len(seeds)


def rows_by_seed(texts: int, seeds: Sequence[int]) -> list[Int[np.ndarray, " rows"]]:
    """Divide texts among seeds, by a draw that follows from them; all texts for every seed where
    they are too few.
    """
    if not has_own_rows(texts, seeds):
        return [np.arange(texts)] * len(seeds)
    return np.array_split(np.random.default_rng([*seeds]).permutation(texts), len(seeds))


def trained_shares(
    model: nn.Module,
    texts: Sequence[Batch],
    substitute: Substitute,
    epochs: int,
    learning_rate: float,
    seed: int,
    progress: bool,
    start: Float[np.ndarray, "layers heads"] | None = None,
    pull: float = 0.0,
) -> Float[np.ndarray, "steps layers heads"]:
    """λ = sigmoid(θ) of λA + (1-λ)C after every step of training θ on what is lost of the answers,
    in mini-batches of texts; the seed is of their order.

    Args:
        start: λ before the first step; None begins at θ = 0.
        pull: weight of the logit of every λ, which is pulled to 1, or below 0 to 0.
    """
    every = every_head(model)
    heads = next(iter(every.values()))
    theta = nn.Parameter(torch.zeros(len(every), len(heads)))
    if start is not None:
        theta.data = torch.from_numpy(start).logit().float()
    shares_by_step: list[Float[Tensor, "layers heads"]] = []

    def parts(rows: Int[np.ndarray, " rows"]) -> list[Int[np.ndarray, " _"]]:
        return [rows[alike] for alike in alike_texts([texts[row] for row in rows])]

    def loss(
        rows: Int[np.ndarray, " rows"], shares: Float[Tensor, "layers heads"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, " texts"]]:
        batch = joined_texts([texts[row] for row in rows], model)
        with ablated(model, every, substitute=Mixed(substitute, shares)):
            mixed = of_batch(model, batch)
        lost = _lost_in_sum(model, batch, mixed)
        # A batch may hold no token that counts, such as a text of one, or no masked word.
        answered = mixed["lengths"].cpu()
        if pull:
            pulled = shares.logit(1e-6).clamp(-FARTHEST, FARTHEST).sum()
            lost = lost - pull * pulled * answered.sum()
        return lost, answered

    spec = ProbeSpec(learning_rate=learning_rate, batch_size=MINI_BATCH, epochs=epochs)
    what = f"gates pulled to {int(pull > 0)}" if pull else "λ"
    with bar(f"{what}, seed {seed}", progress) as report:

        def after_step(done: int, total: int) -> None:
            shares_by_step.append(theta.detach().sigmoid())
            report(done, total)

        rows = np.arange(len(texts))
        train_theta(theta, loss, parts, rows, spec, seed, window=len(texts), progress=after_step)
    return torch.stack(shares_by_step).double().numpy()


def objective_of(found: Mapping[str, Any]) -> str:
    """What λ of an in-memory model is trained to keep low, by what the model answers, in words."""
    if "loss" in found:
        return "the loss of the model itself"
    if "embeddings" in found:
        return "one less the cosine of embeddings to the original's"
    return "the divergence of answers from the original's"


def _lost_in_sum(model: nn.Module, batch: Batch, mixed: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """What the mixed answers to a batch lose, added up over answers."""
    if "loss" in mixed:
        return mixed["loss"].sum()
    with torch.no_grad():
        own = of_batch(model, batch)
    if "embeddings" in mixed:
        kept = nn.functional.cosine_similarity(mixed["embeddings"], own["embeddings"])
        return (1 - kept).sum()
    name = "words" if "words" in mixed else "logits"
    return kl_divergence(own[name], mixed[name]).sum()
