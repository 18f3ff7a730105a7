"""Scores of the heads of a model that the user holds, by its own answers: no labels are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from papa.ablation.interface import attention_modules, head_count
from papa.ablation.substitutes import Mixed, Substitute
from papa.errors import DataError, NumbersError, SpecError
from papa.library.ablating import By, ablated, substitute_for
from papa.library.fidelity import answers, batches_of, compared, kl_divergence, of_batch
from papa.progress import bar
from papa.ranking.seeds import HeadScores
from papa.scores.fidelity import mean_over_examples
from papa.scores.own import OwnScore

OWN = ("lambda", "effect")
"""The methods."""


def own_scores(
    model: nn.Module,
    data: Iterable[Mapping[str, Any]],
    by: str,
    constants: By,
    *,
    made_from: Iterable[Mapping[str, Any]] | None,
    epochs: int,
    learning_rate: float,
    seeds: Sequence[int],
    score: OwnScore | None,
    progress: bool,
) -> pandas.DataFrame:
    """``papa.head_scores`` of such a model."""
    if not isinstance(seeds, Iterable) or not seeds or epochs < 1 or not learning_rate > 0:
        raise SpecError(
            f"epochs is {epochs}, learning_rate is {learning_rate} and seeds are {seeds}, expected "
            "1 or more, above 0, and a list of at least one"
        )
    if score is not None and by != "effect":
        raise SpecError(f"score is for by='effect', found by='{by}': leave it out")
    batches = batches_of(model, data)
    sizes = [head_count(module) for module in attention_modules(model)]
    texts = batches if made_from is None else made_from
    substitute = substitute_for(model, constants, data=texts, seed=seeds[0])
    if by == "effect":
        return _effects(model, batches, substitute, sizes, score, progress)
    with _frozen(model):
        found = [
            _lambda(model, batches, substitute, sizes, epochs, learning_rate, seed, progress)
            for seed in seeds
        ]
    return HeadScores(np.stack(found)).frame(by)


def _effects(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    sizes: Sequence[int],
    score: OwnScore | None,
    progress: bool,
) -> pandas.DataFrame:
    """What is lost of the answers with each head alone replaced, with its interval over texts."""
    heads = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    before, rows, measure = answers(model, batches, score), list[dict[str, Any]](), ""
    with bar("effects of heads", progress) as report:
        for done, (layer, head) in enumerate(heads, 1):
            with ablated(model, [(layer, head)], by=substitute):
                measure, lost = _lost(before, answers(model, batches, score))
            if not np.isfinite(lost).all():
                raise NumbersError(
                    f"the model's answers with head {(layer, head)} replaced",
                    "look at its weights and texts",
                )
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


def _lambda(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    sizes: Sequence[int],
    epochs: int,
    learning_rate: float,
    seed: int,
    progress: bool,
) -> Float[np.ndarray, "layers heads"]:
    """λ = sigmoid(θ) of λA + (1-λ)C after training θ, 0 at the start, on what is lost of the
    answers; a step is taken on each batch, and the seed is of their order.
    """
    every = {layer: range(size) for layer, size in enumerate(sizes)}
    theta = torch.zeros(len(sizes), sizes[0], requires_grad=True)
    optimizer = torch.optim.AdamW([theta], lr=learning_rate, weight_decay=0.0)
    draw = torch.Generator().manual_seed(seed)
    steps = [
        batches[index]
        for _ in range(epochs)
        for index in torch.randperm(len(batches), generator=draw).tolist()
    ]
    with bar(f"λ, seed {seed}", progress) as report:
        for done, batch in enumerate(steps, 1):
            with torch.no_grad():
                own = of_batch(model, batch, model(**batch))
            if not own["lengths"].sum():
                raise DataError(
                    "a batch of data holds no token that counts: give longer texts, or labels that "
                    "are not all -100"
                )
            mixed = Mixed(substitute, theta.sigmoid())
            with torch.enable_grad(), ablated(model, every, mixed):
                loss = _loss(own, of_batch(model, batch, model(**batch)))
            if not loss.isfinite():
                raise SpecError(
                    f"training λ diverged: the loss is {loss.item()}; lower learning_rate, or look "
                    "at the model's answers to the data"
                )
            optimizer.zero_grad()
            loss.backward()
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


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
