"""What a model's own head answers on a split, as it is or with heads constant, and what that
scores; and what a decoder's heads look at on average in the same passes.

Constant matrices are read at the slots that the layout gives the same tokens (paper, App. A), so
averages and head orders are those of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from papa.attention.average import AttentionAverager, AttentionSums
from papa.attention.distances import AverageByDistance, ByDistance
from papa.attention.interface import attention_modules, routed
from papa.attention.substitutes import Substitute, by_layer, rules_of
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens
from papa.encoders.dispatch import Dispatch, See, Watching
from papa.encoders.finite import sum_is_finite
from papa.errors import DataError, NumbersError
from papa.probes.own_model import Padded, answers_of, check_sentences, class_ids, padded_batches
from papa.progress import Progress, ignore_progress
from papa.scores.baselines import labels_of
from papa.scores.fidelity import embedding_score, pair_cosines
from papa.scores.metrics import Scored, mean_of, positive_class, scored
from papa.scores.own import OwnCode, OwnScore, checked_score, own_metric_scored
from papa.spec import TaskSpec
from papa.spec.orders import Head

Answers = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or of words ``top`` and ``log_probabilities`` [answers], the likeliest and that
of the true one; or ``score`` [rows], of the user's own."""
BatchScore = Callable[[Padded, np.ndarray, Any], Tensor]
"""From a batch, the labels of its rows and what the model put out to a number for each text."""


@torch.inference_mode()
def own_answers(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    constants: Substitute | None = None,
    heads: Sequence[Head] = (),
    *,
    embeddings: bool = False,
    score: BatchScore | None = None,
    progress: Progress = ignore_progress,
) -> Answers:
    """What a model answers on a split while ``heads`` are constant, of words and masked words for
    the labelled ones; or ``embeddings``, the mean of the last hidden states over a text's tokens;
    or what ``score`` says of a batch.
    """
    inside: AbstractContextManager[Dispatch | None] = nullcontext()
    if constants is not None and heads:
        modules = attention_modules(model)
        rules = rules_of(constants.to(model.device), by_layer(heads), len(modules))
        inside = routed(model, modules, rules)
    found: list[Answers] = []
    rows_found: list[np.ndarray] = []
    with inside as dispatch:
        for rows, batch in padded_batches(split, special_tokens, model.device):
            if dispatch is not None:
                dispatch.slots, dispatch.real = batch.slots, batch.mask
            if score is None:
                answers = answers_of(model, batch, embeddings)
            else:
                found_of = score(batch, split.labels_of(split.rows[rows]), model(**batch.inputs))
                ones = torch.ones(len(rows), dtype=torch.int64)
                answers = {"score": found_of.float(), "lengths": ones}
            found.append({name: values.cpu().numpy() for name, values in answers.items()})
            rows_found.append(rows)
            progress(sum(map(len, rows_found)), len(split))
    return _in_order(found, np.concatenate(rows_found))


def score_of_batch(
    score: OwnScore,
    ids: Int[np.ndarray, " classes"] | None,
    batch: Padded,
    labels: np.ndarray,
    outputs: Any,
) -> Float[Tensor, " texts"]:
    """A score of the user's own of a batch, called with ``labels`` beside the model's inputs;
    ``ids`` are what its head calls the task's classes, if any.
    """
    given = torch.from_numpy(labels) if batch.labels is None else batch.labels.cpu()
    if ids is not None:
        real = given != IGNORED
        given = given.clone()
        given[real] = torch.from_numpy(ids)[given[real]]
    found = checked_score(score(outputs, {**batch.inputs, "labels": given.to(batch.mask.device)}))
    if len(found) != len(batch.mask):
        raise DataError(
            f"score gave {len(found)} numbers for {len(batch.mask)} texts: give one for each"
        )
    return found


def _in_order(found: Sequence[Answers], rows: Int[np.ndarray, " rows"]) -> Answers:
    """Answers of batches in the order of the split's rows."""
    lengths = np.concatenate([answers["lengths"] for answers in found])
    order = np.argsort(rows)
    together = {
        name: np.concatenate([answers[name] for answers in found])
        for name in found[0]
        if name != "lengths"
    }
    ends = np.cumsum(lengths)
    positions = np.concatenate([np.arange(ends[row] - lengths[row], ends[row]) for row in order])
    return {
        **{name: values[positions] for name, values in together.items()},
        "lengths": lengths[order],
    }


def own_score(
    task: TaskSpec,
    before: Answers,
    after: Answers,
    split: TokenisedSplit,
    names: Sequence[str] | None,
    own: Sequence[str],
    code: OwnCode | None = None,
) -> Scored:
    """What answers score: against the original's, or against the task's labels."""
    lengths = after["lengths"]
    if "score" in after:
        score, influence = mean_of(after["score"])
        return Scored(score, influence[:, None])
    if task.kind == "similarity":
        cosines = pair_cosines(after["embeddings"])
        return scored(task.metric, cosines, labels_of(split)[0][::2])
    if task.of_embeddings:
        check_sentences(task, len(split))
        score, influence = embedding_score(task.metric, before["embeddings"], after["embeddings"])
        return Scored(score, influence[:, None])
    if task.metric == "agreement":
        return scored("agreement", _top(after), _top(before), lengths=lengths)
    labels, lengths = labels_of(split)
    if task.metric == "negative_log_perplexity":
        return scored(task.metric, after["log_probabilities"], labels, lengths=lengths)
    if task.regression:
        return scored(task.metric, after["logits"][:, 0], labels)
    ids = class_ids(names or (), own, task)
    if code and code.metric:
        # With the task's numbers of classes, as beside a probe; a class of the head alone is -1.
        numbers = np.full(len(own), -1)
        numbers[ids] = np.arange(len(ids))
        return own_metric_scored(code.metric, numbers[_top(after)], labels, lengths)
    positive = int(ids[positive_class(task, names)]) if task.metric == "f1" else 1
    return scored(task.metric, _top(after), ids[labels], own, lengths, positive)


def _top(answers: Answers) -> Int[np.ndarray, " answers"]:
    return answers["top"] if "top" in answers else answers["logits"].argmax(1)


def average_by_position(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    heads: int,
    progress: Progress = ignore_progress,
) -> AttentionSums:
    """Sums of A over a split, which merge as those of encoders; a layer of a batch at a time."""
    layers = len(attention_modules(model))
    averager = AttentionAverager(layers, heads, split.slots, model.device)
    _observe(model, split, special_tokens, averager.see, progress)
    sums = averager.result()
    if not sum_is_finite(sums.sums):
        raise NumbersError("the decoder's attention", "look at the size of its weights")
    return sums


def average_by_distance(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    progress: Progress = ignore_progress,
) -> ByDistance:
    """Means of A along diagonals over a split, with the first token apart; no matrix of positions
    is held, whatever S is.
    """
    average = AverageByDistance()
    _observe(model, split, special_tokens, average.see, progress)
    return average.substitute()


@torch.inference_mode()
def _observe(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    see: See,
    progress: Progress,
) -> None:
    modules, done = attention_modules(model), 0
    rules = {layer: Watching(see=see, layer=layer) for layer in range(len(modules))}
    with routed(model, modules, rules) as dispatch:
        for rows, batch in padded_batches(split, special_tokens, model.device):
            # A decoder's slots are positions, the same in all inputs.
            dispatch.slots = torch.arange(batch.mask.shape[1], device=model.device)[None]
            dispatch.real = batch.mask
            model(**batch.inputs)
            done += len(rows)
            progress(done, len(split))
