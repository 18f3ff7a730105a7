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

from papa.ablation import observers
from papa.ablation import substitutes as made
from papa.ablation.interface import LayerAttention, attention_modules, head_count, routed
from papa.ablation.substitutes import Substitute
from papa.attention.constants import ConstantMatrices
from papa.errors import ArtifactError, DataError, SpecError, joined, nearest_first
from papa.spec.constants import PARAMETERS

Heads = Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | Tensor | np.ndarray
By = (
    str
    | Mapping[str, Any]
    | Substitute
    | ConstantMatrices
    | Tensor
    | np.ndarray
    | Callable[..., Any]
)

_MADE_OF_NOTHING: dict[str, Callable[..., Substitute]] = {
    "zeros": made.Zeros,
    "reused": made.Reused,
    "streaming": made.Streaming,
}
_OBSERVERS: dict[str, Callable[[int], observers.Observer]] = {
    "mean": lambda seed: observers.MeanOfOutputs(),
    "resample": observers.DrawnOutputs,
    "average": lambda seed: observers.AverageByPosition(),
    "relative": lambda seed: observers.AverageByDistance(),
    "mean_qk": lambda seed: observers.MeanQueriesAndKeys(),
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

    Positions count from the first token of each text; padding may be on either side of a causal
    model's texts. A block inside another takes its heads from it.

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
            where a head is replaced and 1 elsewhere. Heads count by query.
        by: a name from docs/how-to/head-mask.md ("zeros", "mean", "resample", "average",
            "relative", "mean_qk", "reused", "streaming", with parameters ``{"kind": "streaming",
            "sinks": 4, "recent": 64}``); constant matrices, or an array [layers, heads, slots,
            slots]; or a function of (layer, head, slots) that gives [slots, slots].
        data: batches, for a ``by`` that is made from text: keyword arguments of the model.
        seed: of the draw of "resample".

    Raises:
        EncoderError: the model's attention cannot be reached, or a block holds a part of it.
        SpecError: there is no such head or no such substitute.
        ArtifactError: the matrices are of another size than the model.
        DataError: data is missing; in the block, a text is longer than the matrices have slots.
    """
    modules = attention_modules(model)
    chosen = heads_by_layer(heads, [head_count(module) for module in modules])
    rules = made.rules_of(substitute_for(model, by, data=data, seed=seed), chosen, len(modules))
    with routed(cast("PreTrainedModel", model), modules, rules):
        yield


def heads_by_layer(heads: Any, sizes: Sequence[int]) -> dict[int, list[int]]:
    """The heads to replace, by layer."""
    if isinstance(heads, Tensor | np.ndarray):
        mask = torch.as_tensor(heads)
        if mask.shape != (len(sizes), sizes[0]) or not ((mask == 0) | (mask == 1)).all():
            raise SpecError(
                f"the mask of heads has the shape {tuple(mask.shape)}, expected ({len(sizes)}, "
                f"{sizes[0]}): 0 where a head is replaced and 1 elsewhere"
            )
        heads = (mask == 0).nonzero().tolist()
    elif isinstance(heads, Mapping):
        heads = [(layer, head) for layer, own in heads.items() for head in own]
    found: dict[int, set[int]] = {}
    for pair in heads:
        layer, head = pair if isinstance(pair, Sequence) and len(pair) == 2 else (-1, -1)
        if layer not in range(len(sizes)) or head not in range(sizes[layer]):
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
    by = by.matrices if isinstance(by, ConstantMatrices) else by
    if isinstance(by, Tensor | np.ndarray):
        matrices, expected = torch.as_tensor(by), (len(modules), head_count(modules[0]))
        shape = tuple(matrices.shape)
        if len(shape) != 4 or shape[:2] != expected or shape[2] != shape[3]:
            raise ArtifactError(
                f"the constant matrices have the shape {shape}, expected ({expected[0]}, "
                f"{expected[1]}, slots, slots): a matrix for each layer and head of the model"
            )
        if not matrices.isfinite().all():
            raise ArtifactError("the constant matrices hold NaN or infinity: give finite numbers")
        return made.ByPosition(matrices)
    if isinstance(by, Substitute) and not isinstance(by, type):
        return by
    parameters = dict(by) if isinstance(by, Mapping) else {}
    name = parameters.pop("kind", by)
    if isinstance(name, str) and name in _MADE_OF_NOTHING:
        keys = PARAMETERS.get(name, {})
        if unknown := [one for one in parameters if one not in keys]:
            takes = joined(keys) or "no parameter"
            raise SpecError(f"by='{name}' takes {takes}, found {joined(unknown)}: leave it out")
        return _MADE_OF_NOTHING[name](**parameters)
    if callable(by):
        return made.OfFunction(by)
    if not isinstance(name, str) or name not in _OBSERVERS or parameters:
        known = nearest_first(str(name), [*_MADE_OF_NOTHING, *_OBSERVERS])
        raise SpecError(f"there is no substitute {by!r} (known: {known}): give one, or matrices")
    observer, passes = _OBSERVERS[name](seed), 0
    watching = (
        observer.watching(modules) if isinstance(observer, observers.MeanQueriesAndKeys) else None
    )
    rules = {layer: partial(_seen, observer, layer) for layer in range(len(modules))}
    own = cast("PreTrainedModel", model)
    with torch.no_grad(), watching or nullcontext(), routed(own, modules, rules):
        for inputs in called_with(data or ()):
            model(**inputs)
            passes += 1
    if not passes:
        raise DataError(f'by="{name}" is made from text: give data=, such as [inputs]')
    return observer.result()


def called_with(data: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The batches of what a model is called with."""
    for inputs in data:
        if not isinstance(inputs, Mapping):
            raise DataError(
                f"data holds a {type(inputs).__name__}, expected what the model is called with, "
                'such as tokenizer(texts, padding=True, return_tensors="pt")'
            )
        yield inputs


def _seen(
    observer: observers.Observer, layer: int, attention: LayerAttention
) -> Float[Tensor, "batch heads queries width"]:
    observer.see(attention, layer)
    return attention.output(attention.every_head())
