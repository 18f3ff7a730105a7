"""Heads of an in-memory model, replaced in the user's own loop, and how much of its original
answers it keeps meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import numpy as np
import pandas
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import DataError, SpecError, joined, shown
from papa.heads.attention_layers import attention_layers
from papa.heads.interface import routed
from papa.heads.substitutes import rules_of
from papa.library.batches import Data, batches_of, check_answering
from papa.library.substitutes import RequestedSubstitute, substitute_for
from papa.models.layer import Rule
from papa.native.batches import InMemoryTexts, Rows
from papa.native.losses import kl_divergence
from papa.native.outputs import Answers, check_means, concatenated
from papa.native.passes import NOTHING_COUNTS, NativeHead
from papa.scores.answers import AnswerArrays
from papa.scores.custom import CustomScore
from papa.scores.embeddings import LEAST_SENTENCES, embedding_fidelity
from papa.scores.intervals import mean_over_examples
from papa.spec.orders import Head

Heads: TypeAlias = Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | Tensor | np.ndarray


@contextmanager
def ablated(
    model: nn.Module,
    heads: Heads,
    *,
    substitute: RequestedSubstitute = "average",
    data: Data = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    part: str | None = None,
    seed: int = 0,
) -> Iterator[None]:
    """Replace heads of an in-memory model inside the block; afterwards the model is as before.

    Positions count from the first token of each text; padding may be on either side of a causal
    model's texts. A block inside another takes over its heads.

    Examples:
        >>> with papa.ablated(model, {0: [1], 1: [0, 1]}, data=batches):
        ...     model(**batches[0]).logits.shape
        torch.Size([2, 4, 20])

    Args:
        model: A model of transformers behind its attention interface (``papa models``).
        heads: The heads to replace: (layer, head) pairs from 0, ``{layer: [heads]}``, or a mask
            [layers, heads] that is 0 where a head is replaced and 1 elsewhere.
        substitute: What takes attention's place: a name from docs/how-to/head-mask.md, with
            parameters such as ``{"kind": "streaming", "sinks": 4, "recent": 64}``; constant
            matrices [layers, heads, slots, slots]; or a function of (layer, head, slots) that
            returns a matrix [slots, slots], called for each length of the texts in a batch.
        data: Texts or batches for a substitute that is computed from text, such as "average". No
            text in the block may be longer than the longest of these.
        tokenizer: The model's tokenizer, if ``data`` holds texts.
        part: The part of the model whose heads are replaced, by the model's own name, such as
            "encoder", "decoder" or "vision"; None if the model has one part.
        seed: Seed of the draw of "resampled_output".

    Raises:
        SpecError: There is no such head, substitute or part.
        DataError: The substitute is computed from text, and ``data`` is missing or unusable.
        EncoderError: Heads of this model cannot be replaced.
        ArtifactError: The matrices do not fit the model.
    """
    layers = attention_layers(model, part)
    chosen = layers.indexed(parse_heads(heads, layers.head_counts))
    rules = rules_of(substitute_for(model, substitute, data, seed, tokenizer, part), chosen)
    with routed(cast("PreTrainedModel", model), layers.modules, rules):
        yield


def parse_heads(heads: object, heads_per_layer: Sequence[int]) -> list[Head]:
    """Return the heads to replace, each once, sorted: of pairs (layer, head), of {layer: heads}, or
    of a mask that is 0 for them. Raises a SpecError for a head that there is not.
    """
    if isinstance(heads, pandas.DataFrame):
        raise SpecError(
            "heads is a data frame: give papa.constant_heads(scores, keep=…), or the column "
            "'heads' of one of its rows"
        )
    if is_head(heads):
        raise SpecError(f"heads is the head {heads}: give a list of heads, [{heads}]")
    largest = max(heads_per_layer)
    if isinstance(heads, Tensor | np.ndarray):
        mask = torch.as_tensor(heads)
        if mask.shape != (len(heads_per_layer), largest) or not ((mask == 0) | (mask == 1)).all():
            raise SpecError(
                f"the head mask has the shape {tuple(mask.shape)}, expected "
                f"({len(heads_per_layer)}, {largest}): give 0 for heads to replace and 1 for all "
                "others"
            )
        heads = (mask == 0).nonzero().tolist()
    elif isinstance(heads, Mapping):
        heads = [(layer, head) for layer, of_layer in heads.items() for head in _listed(of_layer)]
    layers = range(len(heads_per_layer))
    checked: set[Head] = set()
    for pair in _listed(heads):
        layer, head = pair if isinstance(pair, Sequence) and len(pair) == 2 else (-1, -1)
        if layer not in layers or head not in range(heads_per_layer[layer]):
            last = layers[-1], largest - 1
            with_attention = [str(number) for number in layers if heads_per_layer[number]]
            hint = f"; of the layers only {joined(with_attention)} have attention"
            raise SpecError(
                f"there is no head {shown(pair)}: give pairs (layer, head), from (0, 0) to {last}, "
                "{layer: [heads]}, or a mask [layers, heads]"
                f"{hint if len(with_attention) < len(layers) else ''}"
            )
        checked.add((layer, head))
    return sorted(checked)


def is_head(value: object) -> bool:
    """Return whether a value is one (layer, head)."""
    return isinstance(value, Sequence) and len(value) == 2 and {*map(type, value)} == {int}


def _listed(values: object) -> Iterable[Any]:
    return values if isinstance(values, Iterable) and not isinstance(values, str) else [values]


def fidelity(
    model: nn.Module,
    data: Data,
    *,
    heads: Heads,
    substitute: RequestedSubstitute = "average",
    substitute_data: Data = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    score: CustomScore | None = None,
    part: str | None = None,
    seed: int = 0,
) -> pandas.DataFrame:
    """Compare a model's answers with heads replaced to its original answers; no labels are needed.

    The measures follow from what the model outputs. Hidden states: of mean-pooled embeddings the
    cosine to the original ones, Spearman's correlation of similarities, and the share of nearest
    neighbours kept. Logits of a classifier (one answer for each text, token or label): agreement
    and divergence. Logits of a language model: agreement of the top token, divergence, and the
    loss of the next token, or of masked tokens where ``labels`` say which tokens count.

    Examples:
        >>> papa.fidelity(model, batches, heads=[(0, 1)]).index.tolist()
        ['agreement', 'divergence', 'loss_before', 'loss_after', 'loss_difference']

    Args:
        model: A model of transformers behind its attention interface, in eval mode.
        data: Batches, the keyword arguments of the model; or texts, with ``tokenizer``.
        heads: The heads to replace, as for ``ablated``.
        substitute: What takes attention's place, as for ``ablated``.
        substitute_data: Other texts or batches, for a substitute that is computed from text: the
            fairer test. None takes ``data``.
        tokenizer: The model's tokenizer, if ``data`` holds texts.
        score: A function to compare by instead: called with the model's output and the batch, it
            returns a number for each text, the larger the better.
        part: The part of the model whose heads are replaced, as for ``ablated``.
        seed: Seed of the draw of "resampled_output".

    Returns:
        A row for every measure: value, and its 95 % interval over texts (low, high). Losses and
        divergences are in nats; ``attrs["texts"]`` is the number of texts.

    Raises:
        DataError: ``data`` holds no text that counts, or batches that do not fit together.
        EncoderError: The model is in train mode, or its heads cannot be replaced.
        SpecError: There is no such head, substitute or part, or ``score`` is no function.
    """
    pretrained = check_answering(model)
    batches = batches_of(data, model, tokenizer)
    computed_from = batches if substitute_data is None else substitute_data
    replacement = substitute_for(model, substitute, computed_from, seed, tokenizer, part)
    texts = InMemoryTexts.from_batches(batches, pretrained)
    native = NativeHead(pretrained, texts, score=score, part=part)
    chosen = native.layers.indexed(parse_heads(heads, native.layers.head_counts))
    before, after = _answers_beside(native, native.rules(replacement, chosen))
    lengths = before["lengths"]
    if "embeddings" in before:
        check_means(pretrained)
        if len(lengths) < LEAST_SENTENCES:
            raise DataError(
                f"data holds {len(lengths)} texts, expected {LEAST_SENTENCES} or more: add texts"
            )
        measures = embedding_fidelity(before["embeddings"], after["embeddings"])
    else:
        measures = {
            name: mean_over_examples(name, values, lengths)
            for name, values in _compared(before, after).items()
        }
    rows = {name: (measure.mean, measure.low, measure.high) for name, measure in measures.items()}
    frame = pandas.DataFrame.from_dict(rows, "index", columns=["value", "low", "high"])
    frame.attrs["texts"] = len(lengths)
    return frame.rename_axis("measure")


@torch.inference_mode()
def _answers_beside(
    native: NativeHead, rules: Mapping[int, Rule]
) -> tuple[AnswerArrays, AnswerArrays]:
    """Return the original model's answers to all texts, and those under rules, with the divergence
    of words, whose logits are too large to keep.
    """
    before: list[Answers] = []
    after: list[Answers] = []
    rows: list[Rows] = []
    for batch in native.texts.batches():
        original = native.answers(batch)
        replaced = native.answers(batch, rules)
        if "words" in original:
            replaced["divergence"] = kl_divergence(original.pop("words"), replaced.pop("words"))
        before.append(original)
        after.append(replaced)
        rows.append(batch.rows)
    return concatenated(before, rows), concatenated(after, rows)


def _compared(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return what answers without embeddings differ in, by measure: a number for each answer."""
    if not before["lengths"].sum():
        raise DataError(NOTHING_COUNTS)
    values: dict[str, np.ndarray] = {}
    if "logits" in before:
        logits = [torch.from_numpy(side["logits"]) for side in (before, after)]
        values["agreement"] = before["logits"].argmax(1) == after["logits"].argmax(1)
        values["divergence"] = kl_divergence(*logits).numpy()
    elif "top" in before:
        values["agreement"] = before["top"] == after["top"]
        if "divergence" in after:
            values["divergence"] = after["divergence"]
    if "log_probabilities" in before:
        values["loss_before"] = -before["log_probabilities"]
        values["loss_after"] = -after["log_probabilities"]
        values["loss_difference"] = values["loss_after"] - values["loss_before"]
    if "score" in before:
        values["score_before"] = before["score"]
        values["score_after"] = after["score"]
        values["score_difference"] = after["score"] - before["score"]
    if "numbers" in before:
        values["squared_difference"] = (after["numbers"] - before["numbers"]) ** 2
    return values
