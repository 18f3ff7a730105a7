"""A model's own head: its answers on a split, as it is or with heads constant, and what they score.

The model runs on its ordinary, padded inputs, as its users call it; constant matrices are read at
the slots that the layout gives the same tokens (paper, App. A), so averages and head orders are
those of probes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.interface import LayerAttention, attention_modules, routed
from papa.ablation.substitutes import Reused, Substitute, rules_of
from papa.corpora.batches import rows_of_like_length
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens
from papa.encoders.files import POOLING, read_configuration_file
from papa.encoders.reference import EncoderReference, check_read, watched
from papa.encoders.weights import load_model
from papa.errors import DataError, EncoderError, joined
from papa.progress import Progress, ignore_progress
from papa.scores.baselines import labels_of
from papa.scores.fidelity import LEAST_SENTENCES, embedding_score, pair_cosines
from papa.scores.metrics import Scored, positive_class, scored
from papa.scores.own import OwnCode, OwnScore, checked_score, mean_scored, own_metric_scored
from papa.spec import TaskSpec
from papa.spec.orders import Head
from papa.spec.task import EMBEDDING_METRICS

MOST_SENTENCES = 2_000
"""Whose similarities are ranked, pair by pair."""
_BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}
_CLASSES, _TAGS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"
Answers = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or of words ``top`` and ``log_probabilities`` [answers], the likeliest and that
of the true one; or ``score`` [rows], of the user's own."""
BatchScore = Callable[["Padded", np.ndarray, Any], Tensor]
"""From a batch, the labels of its rows and what the model put out to a number for each text."""


def own_class(task: TaskSpec, reference: EncoderReference) -> str:
    """The class of transformers that loads a model with the head that the task asks."""
    if task.of_embeddings:
        return "AutoModel"
    if task.kind == "mlm":
        return "AutoModelForMaskedLM"
    if task.kind == "causal":
        return "AutoModelForCausalLM"
    if task.kind == "words":
        return _TAGS
    what = f"encoder '{reference.name}'"
    named = read_configuration_file(Path(reference.folder), what).get("architectures") or [
        "nothing"
    ]
    if task.columns.label is None and str(named[0]).endswith("ForTokenClassification"):
        return _TAGS
    if task.columns.label is None and not str(named[0]).endswith("ForSequenceClassification"):
        raise EncoderError(
            f"{what} has no head that gives classes ({named[0]}): measure it by nearest_10, or "
            "with kind: mlm"
        )
    return _CLASSES


@lru_cache(maxsize=1)
def load_own(reference: EncoderReference, head: str, device: str = "cpu") -> PreTrainedModel:
    """The model with its own head, in float32 and in eval mode; a process keeps the last one."""
    files = watched(reference)
    try:
        what = f"encoder '{reference.name}'"
        model = load_model(Path(reference.folder), what, dtype=torch.float32, head=head)
    finally:
        check_read(reference, files)
    attention_modules(model)
    return cast("PreTrainedModel", model.eval().to(device))


def check_own(
    task: TaskSpec, reference: EncoderReference, names: Sequence[str] | None, rows: int | None
) -> None:
    """Refuse a task that a model's own head cannot serve."""
    if not reference.folder:
        raise EncoderError(
            f"the encoder {reference.name} is held in memory, and its own head is read from its "
            "files: save it and load it by its folder"
        )
    if task.of_embeddings:
        _check_pooling(reference)
    model = load_own(reference, own_class(task, reference))
    if names is not None and task.columns.label is not None:
        class_ids(names, class_names(model), task)
    if rows is not None:
        check_sentences(task, rows)
    classes = getattr(model.config, "num_labels", 2)
    if (
        task.kind in ("text", "pair")
        and not task.of_embeddings
        and (classes == 1) != task.regression
    ):
        gives, fits = (
            ("one number", "spearman")
            if classes == 1
            else (f"{classes} classes", "accuracy or agreement")
        )
        raise EncoderError(
            f"the head of '{reference.name}' gives {gives}, and the metric is {task.metric}: set "
            f"metric: {fits}"
        )


def _check_pooling(reference: EncoderReference) -> None:
    """Refuse an encoder of sentences whose embeddings are no means over tokens."""
    path = Path(reference.folder) / POOLING
    if not path.is_file():
        return
    try:
        found = json.loads(path.read_text())
        modes = found.get("pooling_mode") or [
            name.removeprefix("pooling_mode_").removesuffix("_tokens")
            for name, value in found.items()
            if name.startswith("pooling_mode_") and value is True
        ]
    except (OSError, ValueError, AttributeError) as error:
        raise EncoderError(f"{path} cannot be read ({error}): fetch the encoder again") from None
    if modes not in ("mean", ["mean"]):
        raise EncoderError(
            f"'{reference.name}' pools its embeddings by {modes} ({POOLING}), and PAPA measures "
            "means over tokens: measure it in your own loop, with papa.ablated"
        )


def check_sentences(task: TaskSpec, rows: int) -> None:
    """Refuse a metric of embeddings with too few or too many validation rows."""
    if task.metric not in EMBEDDING_METRICS:
        return
    count = int(task.metric.removeprefix("nearest_")) if task.metric.startswith("nearest") else 0
    least = max(LEAST_SENTENCES, 2 * count + 1)
    if not least <= rows <= MOST_SENTENCES:
        raise DataError(
            f"task '{task.name}' has {rows} validation rows, and {task.metric} takes {least} to "
            f"{MOST_SENTENCES:,} sentences: give more, or set validation_rows"
        )


def class_names(model: PreTrainedModel) -> tuple[str, ...]:
    """The names of the classes that the model's head gives."""
    return tuple(str(name) for _, name in sorted((model.config.id2label or {}).items()))


def class_ids(
    names: Sequence[str], own: Sequence[str], task: TaskSpec
) -> Int[np.ndarray, " classes"]:
    """The number that a model's head has for each class of a task: by name, or as it is where it
    has no names.
    """
    if all(name == f"LABEL_{number}" for number, name in enumerate(own)) and len(names) <= len(own):
        return np.arange(len(names))
    unknown = [name for name in names if name not in own]
    if unknown:
        raise DataError(
            f"task '{task.name}' has labels that the model's head does not know "
            f"({joined(unknown)}): expected {joined(own)}, its id2label: rename them in the data, "
            "or name the task's labels so"
        )
    return np.array([own.index(name) for name in names])


@dataclass
class AtSlots:
    """Constants read at the slots of a layout; of the current batch, by token."""

    constants: Substitute
    slots: Int[Tensor, "batch tokens"]

    def output(
        self, attention: LayerAttention, layer: int, heads: Int[Tensor, " chosen"]
    ) -> Tensor:
        placed = replace(attention, query_slots=self.slots, key_slots=self.slots)
        return self.constants.output(placed, layer, heads)


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
    inside: AbstractContextManager[None] = nullcontext()
    at: AtSlots | None = None
    if constants is not None and heads:
        at = AtSlots(constants, torch.zeros(1, 1, dtype=torch.int64))
        substitute = constants if isinstance(constants, Reused) else at
        modules, by_layer = attention_modules(model), dict[int, list[int]]()
        for layer, head in sorted(heads):
            by_layer.setdefault(layer, []).append(head)
        inside = routed(model, modules, rules_of(substitute, by_layer, len(modules)))
    found: list[Answers] = []
    rows_found: list[np.ndarray] = []
    with inside:
        for rows, batch in padded_batches(split, special_tokens, model.device):
            if at is not None:
                at.slots = batch.slots
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


def padded_batches(
    split: TokenisedSplit, special_tokens: SpecialTokens, device: torch.device
) -> Iterator[tuple[np.ndarray, Padded]]:
    """Batches of a split's rows of like length, with the rows' places in the split."""
    for rows in rows_of_like_length(split.first_lengths, split.lengths, _BATCH_TOKENS[device.type]):
        yield rows, Padded.of(split, split.rows[rows], special_tokens, device)


@dataclass(frozen=True)
class Padded:
    """Rows as a model's users give them, padded on the right: slots are 0 there; labels are of
    tokens, None where rows have them.
    """

    inputs: Mapping[str, Tensor]
    mask: Bool[Tensor, "batch tokens"]
    slots: Int[Tensor, "batch tokens"]
    labels: Int[Tensor, "batch tokens"] | None

    @classmethod
    def of(
        cls,
        split: TokenisedSplit,
        rows: np.ndarray,
        special_tokens: SpecialTokens,
        device: torch.device,
    ) -> Padded:
        tokens = split.tokens(rows)
        mask = (
            torch.arange(int(tokens.lengths.max()))[None]
            < torch.from_numpy(tokens.lengths)[:, None]
        )

        def padded(values: np.ndarray, fill: int) -> Tensor:
            full = torch.full(mask.shape, fill, dtype=torch.int64)
            full[mask] = torch.from_numpy(values.astype(np.int64))
            return full.to(device)

        inputs = {
            "input_ids": padded(tokens.input_ids, special_tokens.pad),
            "attention_mask": mask.long().to(device),
        }
        if any(special_tokens.segments):
            inputs["token_type_ids"] = padded(tokens.token_type_ids, 0)
        labels = padded(split.labels_of(rows), IGNORED) if split.label_per_token else None
        return cls(inputs, mask.to(device), padded(tokens.slot_ids, 0), labels)


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


def answers_of(model: nn.Module, batch: Padded, embeddings: bool) -> dict[str, Tensor]:
    """What a model answers to a batch, as ``Answers`` has it; gradients pass."""
    outputs = model(**batch.inputs)
    ones = torch.ones(len(batch.mask), dtype=torch.int64)
    if embeddings:
        states, real = outputs.last_hidden_state.float(), batch.mask[:, :, None]
        return {"embeddings": (states * real).sum(1) / real.sum(1), "lengths": ones}
    logits = outputs.logits.float()
    if logits.dim() == 2:
        return {"logits": logits, "lengths": ones}
    chosen = batch.mask if batch.labels is None else batch.labels != IGNORED
    logits, lengths = logits[chosen], chosen.sum(1)
    if cast(Any, model).get_output_embeddings() is None or batch.labels is None:
        return {"logits": logits, "lengths": lengths}
    likelihoods: Float[Tensor, "answers words"] = logits.log_softmax(-1)
    true = likelihoods.gather(1, batch.labels[chosen][:, None])[:, 0]
    return {"top": logits.argmax(1), "log_probabilities": true, "lengths": lengths}


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
        return mean_scored(after["score"])
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
