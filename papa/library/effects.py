"""What each head does by itself: the effect on a model's own answers of taking one head away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas
import torch
from jaxtyping import Shaped
from torch import nn

from papa.ablation.interface import attention_modules, head_count
from papa.errors import DataError, NumbersError
from papa.library.ablating import By, ablated, substitute_for
from papa.library.constants import Constants, constants_for
from papa.library.encoder import TextEncoder
from papa.library.fidelity import answers, batches_of, compared
from papa.library.inputs import LaidOut, Texts, laid_out
from papa.library.steps import average, replaced
from papa.progress import bar
from papa.scores.fidelity import mean_over_examples
from papa.scores.own import OwnScore
from papa.spec.orders import Head

Answers: TypeAlias = Mapping[str, np.ndarray]
"""By name, as ``papa.library.fidelity.answers`` gives them."""


def head_effects(
    model: nn.Module | TextEncoder,
    data: Iterable[Mapping[str, Any]] | Texts,
    by: By | Constants = "zeros",
    *,
    heads: Sequence[Head] | None = None,
    made_from: Iterable[Mapping[str, Any]] | Texts | None = None,
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
        model: as for ``papa.ablated``, in eval mode; or an encoder of ``papa.load_encoder``, whose
            embeddings are compared.
        data: what the model is called with: an iterable of keyword arguments; texts, for an
            encoder.
        by: what replaces a head: as for ``papa.ablated``; as for ``papa.replaced``, or "average",
            for an encoder.
        heads: (layer, head) pairs; None takes every head.
        made_from: like ``data``, for a ``by`` that is made from text; None takes ``data``.
        score: a task of your own, as for ``papa.fidelity``; not of an encoder.
        per_example: a row for every head and text instead, without interval.
        seed: of the draw of "resample".
        progress: whether to show a bar.

    Returns:
        Rows of layer, head, measure, effect and its 95 % interval over examples, low and high.

    Raises:
        EncoderError: the model is in train mode, or its attention cannot be reached.
        DataError: there is nothing to compare.
        SpecError, ArtifactError: as ``papa.ablated`` or ``papa.replaced``.
        NumbersError: answers are NaN or infinite.
    """
    if isinstance(model, TextEncoder):
        if score is not None:
            raise DataError(
                "score is of what a model puts out: give the model itself, not an encoder"
            )
        asked, block, sizes = _of_encoder(model, data, by, made_from, progress)
    else:
        asked, block, sizes = _of_model(model, data, by, made_from, score, seed)
    every = [(layer, head) for layer, size in enumerate(sizes) for head in range(size)]
    chosen = every if heads is None else list(heads)
    before, rows = asked(), list[dict[str, Any]]()
    with bar("effects of heads", progress) as report:
        report(0, len(chosen))
        for done, head in enumerate(chosen, 1):
            with block([head]):
                measure, effects = _effect(before, asked())
            if not np.isfinite(effects).all():
                raise NumbersError(
                    f"the model's answers with head {head} replaced",
                    "look at its weights and texts",
                )
            named = {"layer": int(head[0]), "head": int(head[1])}
            rows += _rows(named, measure, effects, before["lengths"], per_example)
            report(done, len(chosen))
    return pandas.DataFrame(rows)


_Block = Callable[[list[Head]], AbstractContextManager[Any]]


def _of_model(
    model: nn.Module, data: Any, by: Any, made_from: Any, score: OwnScore | None, seed: int
) -> tuple[Callable[[], Answers], _Block, list[int]]:
    batches = batches_of(model, data)
    substitute = substitute_for(
        model, by, data=batches if made_from is None else made_from, seed=seed
    )
    sizes = [head_count(module) for module in attention_modules(model)]
    return partial(answers, model, batches, score), partial(ablated, model, by=substitute), sizes


def _of_encoder(
    encoder: TextEncoder, texts: Texts, by: Any, made_from: Any, progress: bool
) -> tuple[Callable[[], Answers], _Block, list[int]]:
    encoder.check_whole()
    inputs = laid_out(encoder, texts, "text", None)
    if isinstance(by, str) and by == "average":
        by = average(encoder, texts if made_from is None else made_from, progress=progress)
    constants = constants_for(encoder, by)
    return (
        partial(_embeddings, encoder, inputs),
        partial(replaced, encoder, constants),
        [encoder.heads] * encoder.layers,
    )


@torch.no_grad()
def _embeddings(encoder: TextEncoder, inputs: LaidOut) -> Answers:
    found = np.empty((len(inputs), encoder.width), dtype=np.float32)
    for batch in inputs.batches():
        states = encoder.encoder.token_states(batch)[-1].cpu()
        sums = states.new_zeros(len(batch.rows), encoder.width).index_add_(
            0, batch.inputs_of_tokens, states
        )
        counts = batch.inputs_of_tokens.bincount(minlength=len(batch.rows))
        found[batch.rows.numpy()] = (sums / counts[:, None]).numpy()
    return {"embeddings": found, "lengths": np.ones(len(inputs), dtype=np.int64)}


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
