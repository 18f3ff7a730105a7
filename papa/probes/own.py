"""A model's own head: loaded, checked against a task, and run on its ordinary, padded inputs, as
its users call it; what it answers as it is or with heads constant, and what that scores.

Constant matrices are read at the slots that the layout gives the same tokens (paper, App. A), so
averages and head orders are those of probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.interface import LayerAttention, attention_modules, routed
from papa.ablation.observers import AverageByDistance
from papa.ablation.substitutes import ByDistance, Reused, Substitute, rules_of
from papa.attention.average import AttentionAverager, AttentionSums
from papa.corpora.batches import rows_of_like_length
from papa.corpora.split import TokenisedSplit
from papa.corpora.tokens import IGNORED, SpecialTokens, special_tokens_for
from papa.encoders.files import read_configuration_file
from papa.encoders.finite import sum_is_finite
from papa.encoders.reference import EncoderReference, load_tokenizer
from papa.encoders.weights import load_model
from papa.errors import DataError, EncoderError, NumbersError, joined
from papa.progress import Progress, ignore_progress
from papa.scores.baselines import labels_of
from papa.scores.fidelity import LEAST_SENTENCES, embedding_score, pair_cosines
from papa.scores.metrics import Scored, mean_of, positive_class, scored
from papa.scores.own import OwnCode, OwnScore, checked_score, own_metric_scored
from papa.spec import TaskSpec
from papa.spec.orders import Head
from papa.spec.task import EMBEDDING_METRICS

MOST_SENTENCES = 2_000
"""Whose similarities are ranked, pair by pair."""
_BATCH_TOKENS = {"cpu": 1024, "cuda": 16_384}
_CLASSES, _TAGS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"
_OF_KIND = {"mlm": "AutoModelForMaskedLM", "causal": "AutoModelForCausalLM", "words": _TAGS}

Answers = dict[str, np.ndarray]
"""``lengths`` [rows], the answers of each row, and ``embeddings`` [rows, width]; or ``logits``
[answers, classes]; or of words ``top`` and ``log_probabilities`` [answers], the likeliest and that
of the true one; or ``score`` [rows], of the user's own."""


def own_class(task: TaskSpec, reference: EncoderReference) -> str:
    """The class of transformers that loads a model with the head that the task asks."""
    if task.of_embeddings:
        if reference.embeds_by:
            raise EncoderError(
                f"'{reference.name}': {reference.embeds_by}, and PAPA measures means over tokens: "
                "measure it in your own loop, with papa.ablated"
            )
        return "AutoModel"
    if task.kind in _OF_KIND:
        return _OF_KIND[task.kind]
    what = f"encoder '{reference.name}'"
    configuration, _ = read_configuration_file(Path(reference.folder), what)
    named = str((configuration.get("architectures") or ["nothing"])[0])
    if task.columns.label is None and named.endswith("ForTokenClassification"):
        return _TAGS
    if task.columns.label is None and not named.endswith("ForSequenceClassification"):
        raise EncoderError(
            f"{what} has no head that gives classes ({named}): measure it by nearest_10, or with "
            "kind: mlm"
        )
    return _CLASSES


@lru_cache(maxsize=1)
def load_own(reference: EncoderReference, head: str, device: str = "cpu") -> PreTrainedModel:
    """The model with its own head, in float32 and in eval mode; a process keeps the last one."""
    model = load_model(reference, head=head)
    attention_modules(model)
    return cast("PreTrainedModel", model.eval().to(device))


def opened_own(
    task: TaskSpec, reference: EncoderReference, device: str = "cpu"
) -> tuple[PreTrainedModel, SpecialTokens]:
    """The model that answers a task, and the special tokens of its texts."""
    tokens = special_tokens_for(task.kind, load_tokenizer(reference))
    model = load_own(reference, own_class(task, reference), device)
    if getattr(model.config, "type_vocab_size", 2) < 2:
        tokens = replace(tokens, segments=(0, 0, 0))
    return model, tokens


def check_own(
    task: TaskSpec, reference: EncoderReference, names: Sequence[str] | None, rows: int | None
) -> str:
    """Refuse a task that a model's own head cannot serve; which of its classes are the task's."""
    if not reference.folder:
        raise EncoderError(
            f"the encoder {reference.name} is held in memory, and its own head is read from its "
            "files: save it and load it by its folder"
        )
    model = load_own(reference, own_class(task, reference))
    told = classes_told(names, class_names(model), task)
    if rows is not None:
        check_sentences(task, rows)
    classes = getattr(model.config, "num_labels", 2)
    of_texts = task.kind in ("text", "pair") and not task.of_embeddings
    if of_texts and (classes == 1) != task.regression:
        gives = "one number" if classes == 1 else f"{classes} classes"
        raise EncoderError(
            f"the head of '{reference.name}' gives {gives}, and the metric is {task.metric}: set "
            f"metric: {'spearman' if classes == 1 else 'accuracy or agreement'}"
        )
    return told


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
    """The number that a model's head has for each class of a task: by name; where the head has no
    names, by the task's ``labels``, or by classes that are numbers themselves.
    """
    if all(name == f"LABEL_{number}" for number, name in enumerate(own)):
        if task.labels and len(names) <= len(own):
            return np.arange(len(names))
        own = [str(number) for number in range(len(own))]
        if not task.labels and not all(map(str.isdecimal, names)):
            raise DataError(
                f"task '{task.name}' has the labels {joined(names)}, and the model's head does not "
                f"name its classes (LABEL_0 to LABEL_{len(own) - 1}): set the task's labels, in "
                "the head's order"
            )
    unknown = [name for name in names if name not in own]
    if unknown:
        raise DataError(
            f"task '{task.name}' has labels that the model's head does not know "
            f"({joined(unknown)}): expected {joined(own)}, its id2label: rename them in the data, "
            "or name the task's labels so"
        )
    return np.array([own.index(name) for name in names])


def classes_told(names: Sequence[str] | None, own: Sequence[str], task: TaskSpec) -> str:
    """Which class of a task is which of a model's head, in words; nothing where it has none."""
    if names is None or task.columns.label is None:
        return ""
    both = zip(names, class_ids(names, own, task), strict=True)
    return ", ".join(f"{name} = {own[number]}" for name, number in both)


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
        lengths = torch.from_numpy(tokens.lengths)[:, None]
        mask = torch.arange(int(lengths.max())) < lengths

        def padded(values: np.ndarray, fill: int) -> Tensor:
            full = torch.full(mask.shape, fill, dtype=torch.int64)
            full[mask] = torch.from_numpy(values.astype(np.int64))
            return full.to(device)

        ids = padded(tokens.input_ids, special_tokens.pad)
        inputs = {"input_ids": ids, "attention_mask": mask.long().to(device)}
        if any(special_tokens.segments):
            inputs["token_type_ids"] = padded(tokens.token_type_ids, 0)
        labels = padded(split.labels_of(rows), IGNORED) if split.label_per_token else None
        return cls(inputs, mask.to(device), padded(tokens.slot_ids, 0), labels)


def padded_batches(
    split: TokenisedSplit, special_tokens: SpecialTokens, device: torch.device
) -> Iterator[tuple[np.ndarray, Padded]]:
    """Batches of a split's rows of like length, with the rows' places in the split."""
    for rows in rows_of_like_length(split.first_lengths, split.lengths, _BATCH_TOKENS[device.type]):
        yield rows, Padded.of(split, split.rows[rows], special_tokens, device)


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
    score: OwnScore | None = None,
    ids: Int[np.ndarray, " classes"] | None = None,
    progress: Progress = ignore_progress,
) -> Answers:
    """What a model answers on a split while ``heads`` are constant, of words and masked words for
    the labelled ones; or ``embeddings``, the mean of the last hidden states over a text's tokens;
    or what a ``score`` of the user's own says of a batch, whose labels are ``ids``, what the head
    calls the task's classes.
    """
    at, done = AtSlots(constants or Reused(), torch.zeros(1, 1, dtype=torch.int64)), 0
    found: dict[str, dict[int, Tensor]] = {}
    with ExitStack() as inside:
        if constants is not None and heads:
            modules, by_layer = attention_modules(model), dict[int, list[int]]()
            for layer, head in sorted(heads):
                by_layer.setdefault(layer, []).append(head)
            substitute = constants if isinstance(constants, Reused) else at
            rules = rules_of(substitute, by_layer, len(modules))
            inside.enter_context(routed(model, modules, rules))
        for rows, batch in padded_batches(split, special_tokens, model.device):
            at.slots = batch.slots
            if score is None:
                answers = answers_of(model, batch, embeddings)
            else:
                answers = _scored_batch(score, ids, batch, split.labels_of(split.rows[rows]), model)
            lengths = answers["lengths"].tolist()
            answers["lengths"] = torch.tensor(lengths)
            for name, values in answers.items():
                pieces = values.cpu().split([1] * len(rows) if name == "lengths" else lengths)
                found.setdefault(name, {}).update(zip(rows.tolist(), pieces, strict=True))
            done += len(rows)
            progress(done, len(split))
    return {
        name: torch.cat([own[row] for row in range(len(split))]).numpy()
        for name, own in found.items()
    }


def _scored_batch(
    score: OwnScore,
    ids: Int[np.ndarray, " classes"] | None,
    batch: Padded,
    labels: np.ndarray,
    model: PreTrainedModel,
) -> dict[str, Tensor]:
    """A score of the user's own, called with ``labels`` beside the model's inputs."""
    given = torch.from_numpy(labels) if batch.labels is None else batch.labels.cpu()
    if ids is not None:
        given = torch.from_numpy(ids)[given.clamp(min=0)].where(given != IGNORED, IGNORED)
    inputs = {**batch.inputs, "labels": given.to(batch.mask.device)}
    found = checked_score(score(model(**batch.inputs), inputs))
    if len(found) != len(batch.mask):
        raise DataError(
            f"score gave {len(found)} numbers for {len(batch.mask)} texts: give one for each"
        )
    return {"score": found.float(), "lengths": torch.ones(len(found), dtype=torch.int64)}


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
    layers, device = len(attention_modules(model)), model.device
    averager = AttentionAverager(layers, heads, split.slots, device)

    def see(attention: LayerAttention, layer: int) -> None:
        positions = torch.arange(attention.query.shape[-2], device=device)
        probabilities = attention.probabilities(attention.every_head())
        averager.update(layer, probabilities, positions, attention.real_queries)

    _observe(model, split, special_tokens, see, progress)
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
    return average.result()


@torch.inference_mode()
def _observe(
    model: PreTrainedModel,
    split: TokenisedSplit,
    special_tokens: SpecialTokens,
    see: Callable[[LayerAttention, int], None],
    progress: Progress,
) -> None:
    modules, done = attention_modules(model), 0

    def rule(attention: LayerAttention, layer: int) -> Tensor:
        see(attention, layer)
        return attention.output(attention.every_head())

    rules = {layer: partial(rule, layer=layer) for layer in range(len(modules))}
    with routed(model, modules, rules):
        for rows, batch in padded_batches(split, special_tokens, model.device):
            model(**batch.inputs)
            done += len(rows)
            progress(done, len(split))
