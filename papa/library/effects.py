"""What each head does by itself: the effect on a model's own answers of taking one head away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas
from jaxtyping import Shaped
from torch import nn

from papa.ablation.interface import attention_modules, head_count
from papa.errors import NumbersError
from papa.library.ablating import By, ablated, substitute_for
from papa.library.fidelity import answers, batches_of, compared
from papa.progress import bar
from papa.scores.fidelity import mean_over_examples
from papa.scores.own import OwnScore
from papa.spec.orders import Head

Answers: TypeAlias = Mapping[str, np.ndarray]
"""By name, as ``papa.library.fidelity.answers`` gives them."""


def head_effects(
    model: nn.Module,
    data: Iterable[Mapping[str, Any]],
    by: By = "zeros",
    *,
    heads: Sequence[Head] | None = None,
    made_from: Iterable[Mapping[str, Any]] | None = None,
    score: OwnScore | None = None,
    per_example: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> pandas.DataFrame:
    """What is lost of a model's own answers where one head alone is replaced, for each head; no
    labels are needed.

    The effect is 0 where nothing changes, and larger the more is lost: of a language model the loss
    with the head replaced less that before, in nats; of a classifier the Kullback-Leibler
    divergence from the original's answers, in nats; of a masked language model without ``labels``
    the share of top tokens that change; of hidden states one less the cosine of mean-pooled
    embeddings to their own; of ``score`` the score before less that after.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> batch = {"input_ids": torch.tensor([[3, 5, 7, 5], [2, 2, 4, 9]])}
        >>> papa.head_effects(model, [batch], progress=False).shape  # a row for each of four heads
        (4, 6)

    Args:
        model: as for ``papa.ablated``, in eval mode.
        data: what the model is called with: an iterable of keyword arguments.
        by: what replaces a head: as for ``papa.ablated``.
        heads: (layer, head) pairs; None takes every head.
        made_from: like ``data``, for a ``by`` that is made from text; None takes ``data``.
        score: a task of your own, as for ``papa.fidelity``.
        per_example: a row for every head and text instead, without interval.
        seed: of the draw of "resample".
        progress: whether to show a bar.

    Returns:
        Rows of layer, head, measure, effect and its 95 % interval over examples, low and high.

    Raises:
        EncoderError: the model is in train mode, or its attention cannot be reached.
        DataError: there is nothing to compare.
        SpecError, ArtifactError: as ``papa.ablated``.
        NumbersError: answers are NaN or infinite.
    """
    batches = batches_of(model, data)
    substitute = substitute_for(
        model, by, data=batches if made_from is None else made_from, seed=seed
    )
    sizes = [head_count(module) for module in attention_modules(model)]
    every = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    chosen = every if heads is None else list(heads)
    before, rows = answers(model, batches, score), list[dict[str, Any]]()
    with bar("effects of heads", progress) as report:
        report(0, len(chosen))
        for done, head in enumerate(chosen, 1):
            with ablated(model, [head], by=substitute):
                measure, effects = _effect(before, answers(model, batches, score))
            if not np.isfinite(effects).all():
                raise NumbersError(
                    f"the model's answers with head {head} replaced",
                    "look at its weights and texts",
                )
            named = {"layer": int(head[0]), "head": int(head[1])}
            rows += _rows(named, measure, effects, before["lengths"], per_example)
            report(done, len(chosen))
    return pandas.DataFrame(rows)


def _effect(before: Answers, after: Answers) -> tuple[str, Shaped[np.ndarray, " answers"]]:
    """The measure, as ``clipped`` knows it, and what is lost of each answer; of agreement whether
    it is.
    """
    if "embeddings" in before:
        first = before["embeddings"].astype(np.float64)
        second = after["embeddings"].astype(np.float64)
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return "cosine_lost", 1 - (first * second).sum(1) / np.maximum(lengths, 1e-12)
    values = compared(before, after)
    if "score_difference" in values:
        return "score_difference", -values["score_difference"].astype(np.float64)
    for name in ("loss_difference", "divergence"):
        if name in values:
            return name, values[name].astype(np.float64)
    return "agreement", ~values["agreement"]


def _rows(
    head: dict[str, int], measure: str, effects: np.ndarray, lengths: np.ndarray, per_example: bool
) -> list[dict[str, Any]]:
    named = {**head, "measure": measure.partition("_")[0]}
    if not per_example:
        found = mean_over_examples(measure, effects, lengths)
        return [{**named, "effect": found.mean, "low": found.low, "high": found.high}]
    examples = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(examples, effects, minlength=len(lengths))
    means = np.divide(sums, lengths, out=np.full(len(lengths), np.nan), where=lengths > 0)
    return [
        {**named, "example": number, "effect": effect}
        for number, effect in enumerate(means.tolist())
    ]
