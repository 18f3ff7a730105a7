"""Scores of the heads of a model that the user holds, by its own answers: no labels are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from papa.ablation.interface import attention_modules, head_count
from papa.ablation.substitutes import Mixed, Substitute
from papa.errors import DataError, NumbersError, SpecError
from papa.library.ablating import ablated
from papa.library.fidelity import answers, compared, kl_divergence, of_batch
from papa.progress import bar
from papa.scores.fidelity import mean_over_examples
from papa.scores.own import OwnScore


def effects(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    score: OwnScore | None,
    progress: bool,
) -> pandas.DataFrame:
    """What is lost of the answers with each head alone replaced, with its interval over texts."""
    sizes = map(head_count, attention_modules(model))
    heads = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    before, rows, measure = answers(model, batches, score), list[dict[str, Any]](), ""
    with bar("effects of heads", progress) as report:
        for done, (layer, head) in enumerate(heads, 1):
            with ablated(model, [(layer, head)], by=substitute):
                measure, lost = _lost(before, answers(model, batches, score))
            if not np.isfinite(lost).all():
                what = f"the model's answers with head {(layer, head)} replaced"
                raise NumbersError(what, "look at its weights and texts")
            mean = mean_over_examples(measure, lost, before["lengths"])
            ends = {"score": mean.mean, "low": mean.low, "high": mean.high}
            rows.append({"layer": layer, "head": head, "method": "effect", **ends})
            report(done, len(heads))
    frame = pandas.DataFrame(rows)
    frame.attrs["measure"] = measure.partition("_")[0]
    return frame


def _lost(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> tuple[str, Shaped[np.ndarray, " answers"]]:
    """The measure, as ``mean_over_examples`` knows it, and what is lost of each answer; of
    agreement whether it is.
    """
    if "embeddings" in before:
        first, second = (one["embeddings"].astype(np.float64) for one in (before, after))
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return "cosine_lost", 1 - (first * second).sum(1) / np.maximum(lengths, 1e-12)
    values = compared(before, after)
    if "score_difference" in values:
        return "score_difference", -values["score_difference"].astype(np.float64)
    for name in ("loss_difference", "divergence"):
        if name in values:
            return name, values[name].astype(np.float64)
    return "agreement", ~values["agreement"]


def trained_lambda(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    epochs: int,
    learning_rate: float,
    seed: int,
    progress: bool,
) -> Float[np.ndarray, "layers heads"]:
    """λ = sigmoid(θ) of λA + (1-λ)C after training θ, 0 at the start, on what is lost of the
    answers; a step is taken on each batch, and the seed is of their order.
    """
    sizes = list(map(head_count, attention_modules(model)))
    every = {layer: range(size) for layer, size in enumerate(sizes)}
    theta = torch.zeros(len(sizes), sizes[0], requires_grad=True)
    optimizer = torch.optim.AdamW([theta], lr=learning_rate, weight_decay=0.0)
    draw = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(batches), generator=draw).tolist() for _ in range(epochs)]
    steps = [batches[index] for order in orders for index in order]
    with bar(f"λ, seed {seed}", progress) as report:
        for done, batch in enumerate(steps, 1):
            with torch.no_grad():
                own = of_batch(model, batch)
            if not own["lengths"].sum():
                raise DataError(
                    "a batch of data holds no token that counts: give longer texts, or labels that "
                    "are not all -100"
                )
            mixed = Mixed(substitute, theta.sigmoid())
            with torch.enable_grad(), ablated(model, every, mixed):
                loss = _loss(own, of_batch(model, batch))
            if not loss.isfinite():
                raise SpecError(
                    f"training λ diverged: the loss is {loss.item()}; lower learning_rate, or look "
                    "at the model's answers to the data"
                )
            (theta.grad,) = torch.autograd.grad(loss, theta)
            optimizer.step()
            report(done, len(steps))
    return theta.detach().sigmoid().double().numpy()


def _loss(own: Mapping[str, Tensor], mixed: Mapping[str, Tensor]) -> Tensor:
    if "loss" in mixed:
        return mixed["loss"].mean()
    if "embeddings" in mixed:
        return 1 - nn.functional.cosine_similarity(mixed["embeddings"], own["embeddings"]).mean()
    name = "words" if "words" in mixed else "logits"
    return kl_divergence(own[name], mixed[name]).mean()
