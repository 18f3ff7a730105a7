"""Heads of a model that the user holds, replaced in the user's own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.ablation.interface import LayerAttention, attention_modules, head_count, routed
from papa.ablation.observers import (
    AverageByDistance,
    AverageByPosition,
    DrawnOutputs,
    MeanOfOutputs,
    MeanQueriesAndKeys,
    Observer,
)
from papa.ablation.substitutes import (
    ByPosition,
    MatrixFunction,
    OfFunction,
    Reused,
    Substitute,
    Zeros,
    rules_of,
)
from papa.attention.constants import ConstantMatrices
from papa.errors import ArtifactError, DataError, SpecError, nearest_first

Heads = Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | Tensor | np.ndarray
By = str | Substitute | ConstantMatrices | Tensor | np.ndarray | MatrixFunction

_MADE_OF_NOTHING: dict[str, Substitute] = {"zeros": Zeros(), "reused": Reused()}
_OBSERVERS: dict[str, Callable[[int], Observer]] = {
    "mean": lambda seed: MeanOfOutputs(),
    "resample": DrawnOutputs,
    "average": lambda seed: AverageByPosition(),
    "relative": lambda seed: AverageByDistance(),
    "mean_qk": lambda seed: MeanQueriesAndKeys(),
}
"""Substitutes that are made from text."""


@contextmanager
def ablated(
    model: nn.Module,
    heads: Heads,
    by: By = "zeros",
    *,
    data: Iterable[Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> Iterator[None]:
    """Inside the block these heads of the user's model put out something else; the model is as
    before after it.

    The model runs in the user's own loop, with its own head, masks, hooks and generation. Positions
    count from the first token of each text; padding may be on either side of a causal model's
    texts.

    A block inside another takes its heads from it; the others stay as the outer one has them.

    Examples:
        >>> import papa, torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=2, n_head=2)).eval()
        >>> tokens = {"input_ids": torch.tensor([[3, 5, 7, 5]])}
        >>> with papa.ablated(model, {0: [1], 1: [0, 1]}, by="average", data=[tokens]):
        ...     logits = model(**tokens).logits
        >>> logits.shape
        torch.Size([1, 4, 20])

    Args:
        model: of transformers, behind its attention interface; ``papa models`` lists what is
            tested.
        heads: (layer, head) pairs; or ``{layer: [heads]}``; or a mask [layers, heads] that is 0
            where a head is replaced and 1 elsewhere. Layers and heads count from 0, heads by query.
        by: "zeros"; "mean" or "resample", a head's mean output or its output in another text;
            "average" or "relative", its mean attention by position or by distance; "mean_qk", what
            its mean query and mean key attend to at each distance (rotary positions); "reused", A
            of the same head of the layer before, where heads of the first keep their own; constant
            matrices, or an array [layers, heads, slots, slots]; or a function of (layer, head,
            slots) that gives [slots, slots]; or ``papa.Streaming``, its own attention to the first
            and the last tokens. In a text longer than those that "relative" was made from, a
            distance that none of them had has the weight of the farthest that one had.
        data: what the model is called with, for a ``by`` that is made from text: an iterable of
            keyword arguments.
        seed: of the draw of "resample".

    Raises:
        EncoderError: the model's attention cannot be reached, or a block holds a part of it.
        SpecError: there is no such head or no such substitute.
        ArtifactError: the matrices are of another size than the model.
        DataError: data is missing; in the block, a text is longer than the matrices have slots.
    """
    modules = attention_modules(model)
    sizes = [head_count(module) for module in modules]
    chosen = heads_by_layer(heads, sizes)
    substitute = substitute_for(model, by, data=data, seed=seed)
    rules = rules_of(substitute, chosen, len(modules))
    with routed(cast("PreTrainedModel", model), modules, rules):
        yield


def heads_by_layer(heads: Heads | Any, sizes: Sequence[int]) -> dict[int, list[int]]:
    """The heads to replace, by layer."""
    if isinstance(heads, Tensor | np.ndarray):
        mask = torch.as_tensor(heads)
        if mask.shape != (len(sizes), sizes[0]):
            raise SpecError(
                f"the mask of heads has the shape {tuple(mask.shape)}, expected ({len(sizes)}, "
                f"{sizes[0]}): a row for each layer, 0 where a head is replaced"
            )
        if not ((mask == 0) | (mask == 1)).all():
            raise SpecError("the mask of heads holds more than 0 and 1: write 0 where to replace")
        pairs: list[Any] = (mask == 0).nonzero().tolist()
    elif isinstance(heads, Mapping):
        pairs = [
            (layer, head)
            for layer, own in heads.items()
            for head in (own if isinstance(own, Iterable) else [own])
        ]
    elif isinstance(heads, Iterable):
        pairs = list(heads)
    else:
        raise SpecError(
            f"heads is {heads!r}: give (layer, head) pairs, {{layer: [heads]}} or a mask"
        )
    found: dict[int, set[int]] = {}
    for pair in pairs:
        known = isinstance(pair, Sequence) and len(pair) == 2
        whole = known and all(
            isinstance(number, int | np.integer) and not isinstance(number, bool) for number in pair
        )
        layer, head = pair if whole else (-1, -1)
        if not (0 <= layer < len(sizes) and 0 <= head < sizes[layer]):
            raise SpecError(
                f"there is no head {pair!r}: heads are (layer, head), from (0, 0) to "
                f"({len(sizes) - 1}, {sizes[0] - 1})"
            )
        found.setdefault(layer, set()).add(head)
    return {layer: sorted(own) for layer, own in found.items()}


def substitute_for(
    model: nn.Module,
    by: By | Any,
    *,
    data: Iterable[Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> Substitute:
    """What ``by`` names, made once for several blocks: ``ablated`` takes it. Arguments and errors
    are as there.
    """
    modules = attention_modules(model)
    sizes = [head_count(module) for module in modules]
    if isinstance(by, ConstantMatrices):
        by = by.matrices
    if isinstance(by, Tensor | np.ndarray):
        matrices = torch.as_tensor(by)
        if (
            matrices.dim() != 4
            or matrices.shape[:2] != (len(sizes), sizes[0])
            or matrices.shape[2] != matrices.shape[3]
        ):
            raise ArtifactError(
                f"the constant matrices have the shape {tuple(matrices.shape)}, expected "
                f"({len(sizes)}, {sizes[0]}, slots, slots): a matrix for each layer and head of "
                "the model"
            )
        if not matrices.isfinite().all():
            raise ArtifactError("the constant matrices hold NaN or infinity: give finite numbers")
        return ByPosition(matrices)
    if isinstance(by, Substitute):
        if isinstance(by, type):
            raise SpecError(
                f"by is the class {by.__name__}: give one of its kind, such as {by.__name__}()"
            )
        return by
    if isinstance(by, str) and by in _MADE_OF_NOTHING:
        return _MADE_OF_NOTHING[by]
    if callable(by):
        return OfFunction(by)
    if not isinstance(by, str):
        raise SpecError(
            f"by is {by!r}: give the name of a substitute, an array of matrices or a function"
        )
    if by not in _OBSERVERS:
        known = nearest_first(by, [*_MADE_OF_NOTHING, *_OBSERVERS])
        raise SpecError(
            f"there is no substitute '{by}' (known: {known}): give one of them, matrices or a "
            "function"
        )
    observer = _OBSERVERS[by](seed)
    passes = 0
    with (
        torch.no_grad(),
        observer.watching(modules) if isinstance(observer, MeanQueriesAndKeys) else nullcontext(),
        routed(
            cast("PreTrainedModel", model),
            modules,
            {layer: partial(_seen, observer, layer) for layer in range(len(sizes))},
        ),
    ):
        for inputs in called_with(data or ()):
            model(**inputs)
            passes += 1
    if not passes:
        raise DataError(
            f'by="{by}" is made from text: give data=, '
            "what the model is called with, such as [inputs]"
        )
    return observer.result()


def called_with(data: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The batches of what a model is called with, each looked at."""
    for inputs in data:
        if not isinstance(inputs, Mapping):
            raise DataError(
                f"data holds a {type(inputs).__name__}, expected what the model is called with: "
                'give batches, such as [tokenizer(texts, padding=True, return_tensors="pt")]'
            )
        yield inputs


def _seen(
    observer: Observer, layer: int, attention: LayerAttention
) -> Float[Tensor, "batch heads queries width"]:
    observer.see(attention, layer)
    return attention.output(attention.every_head())
