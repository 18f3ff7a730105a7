"""Heads of a model that the user holds, replaced in the user's own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from papa.attention.average import AttentionAverager
from papa.attention.constants import ConstantMatrices
from papa.attention.distances import AverageByDistance, MeanQueriesAndKeys
from papa.attention.interface import attention_modules, head_count, routed
from papa.attention.outputs import DrawnOutputs, MeanOutputs
from papa.attention.substitutes import (
    OfFunction,
    Reused,
    Streaming,
    Substitute,
    Zeros,
    rules_of,
)
from papa.encoders.layer import Watching
from papa.errors import ArtifactError, DataError, EncoderError, SpecError, nearest_first

Heads: TypeAlias = Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | Tensor | np.ndarray
_MADE: dict[str, Any] = {"zeros": Zeros, "reused": Reused, "streaming": Streaming}
_FROM_TEXT: dict[str, Callable[[Any, list[nn.Module], int], Any]] = {
    "mean": lambda model, modules, seed: MeanOutputs(),
    "resample": lambda model, modules, seed: DrawnOutputs(seed),
    "average": lambda model, modules, seed: AttentionAverager(
        len(modules), head_count(modules[0]), device=model.device
    ),
    "relative": lambda model, modules, seed: AverageByDistance(),
    "mean_qk": lambda model, modules, seed: MeanQueriesAndKeys(model, modules),
}


@contextmanager
def ablated(
    model: nn.Module,
    heads: Heads,
    by: Any = "zeros",
    *,
    data: Iterable[Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> Iterator[None]:
    """Inside the block these heads of the user's model put out something else; the model is as
    before after it.

    Positions count from the first token of each text; padding may be on either side of a causal
    model's texts. A block inside another takes its heads from it.

    Examples:
        >>> with papa.ablated(model, {0: [1], 1: [0, 1]}, by="average", data=batches):
        ...     model(**batches[0]).logits.shape
        torch.Size([2, 4, 20])

    Args:
        model: of transformers, behind its attention interface (``papa models``).
        by: a name from docs/how-to/head-mask.md, with parameters such as ``{"kind": "streaming",
            "sinks": 4, "recent": 64}``; constant matrices; or a function of (layer, head, slots)
            that gives [slots, slots].
        data: for a ``by`` that is made from text; no text may be longer than that made slots.
        seed: of the draw of "resample".
    """
    modules = attention_modules(model)
    chosen = heads_by_layer(heads, [head_count(module) for module in modules])
    rules = rules_of(substitute_for(model, by, data, seed), chosen, len(modules))
    with routed(cast("PreTrainedModel", model), modules, rules):
        yield


def heads_by_layer(heads: Any, sizes: Sequence[int]) -> dict[int, list[int]]:
    """The heads to replace, by layer."""
    if isinstance(heads, Tensor | np.ndarray):
        mask = torch.as_tensor(heads)
        if mask.shape != (len(sizes), sizes[0]) or not ((mask == 0) | (mask == 1)).all():
            raise SpecError(
                f"the mask of heads has the shape {tuple(mask.shape)}, expected ({len(sizes)}, "
                f"{sizes[0]}) with 0 where a head is replaced, 1 elsewhere, and no other value"
            )
        heads = (mask == 0).nonzero().tolist()
    elif isinstance(heads, Mapping):
        heads = [(layer, head) for layer, own in heads.items() for head in own]
    found: dict[int, set[int]] = {}
    for pair in heads:
        layer, head = pair if isinstance(pair, Sequence) and len(pair) == 2 else (-1, -1)
        if layer not in range(len(sizes)) or head not in range(sizes[layer]):
            last = len(sizes) - 1, sizes[0] - 1
            raise SpecError(
                f"there is no head {pair!r}: heads are (layer, head), from (0, 0) to {last}"
            )
        found.setdefault(layer, set()).add(head)
    return {layer: sorted(own) for layer, own in found.items()}


def substitute_for(
    model: nn.Module, by: Any, data: Iterable[Mapping[str, Any]] | None = None, seed: int = 0
) -> Substitute:
    """What ``by`` names, made once for several blocks: ``ablated`` takes it."""
    modules, held = attention_modules(model), cast("PreTrainedModel", model)
    if isinstance(by, ConstantMatrices):
        checked_matrices(by.matrices, len(modules), head_count(modules[0]))
    if isinstance(by, Tensor | np.ndarray):
        matrices = checked_matrices(by, len(modules), head_count(modules[0]))
        by = ConstantMatrices(matrices, torch.ones(matrices.shape[-2:], dtype=torch.bool), "own")
    if isinstance(by, Substitute):
        return by.to(held.device)
    if callable(by):
        return OfFunction(by)
    parameters = dict(by) if isinstance(by, Mapping) else {"kind": by}
    name = parameters.pop("kind", None)
    if name in _MADE:
        return _MADE[name](**parameters)
    if name not in _FROM_TEXT:
        known = nearest_first(str(name), [*_MADE, *_FROM_TEXT])
        raise SpecError(f"there is no substitute {by!r} (known: {known}): give one, or matrices")
    batches, observer = batches_of(data), _FROM_TEXT[name](model, modules, seed, **parameters)
    rules = {at: Watching(see=observer.see, layer=at) for at in range(len(modules))}
    with torch.no_grad(), routed(held, modules, rules):
        for inputs in batches:
            model(**inputs)
    return observer.substitute().to(held.device)


def checked_matrices(given: Any, layers: int, heads: int, slots: int | None = None) -> Tensor:
    """Constant matrices of this shape; None takes any number of slots."""
    matrices = torch.as_tensor(given)
    size = slots or matrices.shape[-1]
    expected, right = [layers, heads, size, size], matrices.is_floating_point()
    if list(matrices.shape) != expected or not (right and matrices.isfinite().all()):
        raise ArtifactError(
            f"the constant matrices are {matrices.dtype} of shape {list(matrices.shape)}, expected "
            f"finite floating-point numbers {expected} (layers, heads, slots, slots)"
        )
    return matrices


def batches_of(
    data: Iterable[Mapping[str, Any]] | None, model: nn.Module | None = None
) -> list[Mapping[str, Any]]:
    """The batches of what a model is called with, of one that shall answer."""
    if model is not None and model.training:
        why = "where dropout changes its answers: call model.eval() first"
        raise EncoderError(f"the model is in train mode, {why}")
    batches = list(data or ())
    if not batches or not isinstance(batches[0], Mapping):
        raise DataError(
            "data holds no batch of what the model is called with: give a list, such as "
            '[tokenizer(texts, padding=True, return_tensors="pt")]'
        )
    return batches
