"""Passes over the same batch compute the layers below the first changed head only once.

Replacing heads of a layer leaves the outputs of all layers below it unchanged. If two passes over
a batch replace the same heads below some layer, the second pass reuses what the layers below it
output in the first. The results are those of plain passes; nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from papa.heads.attention_layers import attention_layers, head_count
from papa.heads.interface import routed
from papa.heads.substitutes import Zeros, rules_of
from papa.spec.orders import Head

Outputs = TypeVar("Outputs")
Forward = Callable[..., object]
_MOST_BYTES = 2**30
"""The most memory for layer outputs, over all batches. Where a pass does not fit, its outputs are
not kept, and the next pass over its batch computes all layers.
"""
_CACHES = ("past_key_values", "mems", "state", "cache_params")
"""Outputs to which reused layers add nothing; no result is read from them."""
_TOLERANCE = 1e-6
"""Absolute and relative, for outputs of a pass with reused layers to equal those of a plain one."""


@dataclass
class LayerReuse:
    """Runs passes of one model, and reuses lower layers of the last pass over the same batch.

    Attributes:
        layers: The model's layers, in the order in which a pass calls them. Empty if the model does
            not allow reuse: every pass then computes all layers.
        positions: The index in ``layers`` of each layer with attention. Heads number only these
            layers.
    """

    layers: Sequence[nn.Module] = ()
    positions: Sequence[int] = ()
    _recordings: dict[Hashable, _Recording] = field(default_factory=dict)

    def run(
        self,
        batch: Hashable,
        substitute: object,
        heads: Collection[Head],
        forward: Callable[[], Outputs],
    ) -> Outputs:
        """Run a pass and keep the outputs of its layers for the next pass over the same batch.

        With gradients enabled, nothing is reused or kept.

        Args:
            batch: Names the model's inputs: equal names mean equal inputs.
            substitute: What the replaced heads output, compared by identity.
            heads: All heads that ``forward`` replaces: (index among layers with attention, head).
            forward: Runs the model on the batch.

        Returns:
            What ``forward`` returns.
        """
        if not self.layers or torch.is_grad_enabled():
            return forward()
        replaced = frozenset(heads)
        before = self._recordings.pop(batch, None)
        reused: Sequence[object] = []
        if before is not None:
            is_same = before.substitute is substitute
            changed = before.heads ^ replaced if is_same else before.heads | replaced
            reused = before.outputs[: self._layers_below(changed)]
        with _layers_reused(self.layers, reused) as computed:
            outputs = forward()
        # Where a layer runs twice, or not at all, its index does not name one output.
        if [*computed] == [*range(len(reused), len(self.layers))]:
            self._keep(batch, _Recording(substitute, replaced, [*reused, *computed.values()]))
        return outputs

    def forget(self, batch: Hashable) -> None:
        """Drop the outputs that are kept for a batch, after the last pass over it."""
        self._recordings.pop(batch, None)

    def _layers_below(self, changed: Collection[Head]) -> int:
        """Return the number of layers below the lowest of these heads; without heads, of those
        below the last attention.
        """
        # ``routed`` raises an error if a pass computes no attention at all.
        return self.positions[min((layer for layer, _ in changed), default=-1)]

    def _keep(self, batch: Hashable, recording: _Recording) -> None:
        stored = sum(earlier.size for earlier in self._recordings.values())
        if stored + recording.size <= _MOST_BYTES:
            self._recordings[batch] = recording


@dataclass(frozen=True)
class _Recording:
    """The outputs of all layers in one pass, in which ``heads`` output ``substitute``."""

    substitute: object
    heads: frozenset[Head]
    outputs: Sequence[object]

    @property
    def size(self) -> int:
        """Bytes of the outputs' tensors."""
        return sum(tensor.nbytes for tensor in _tensors_of(list(self.outputs)))


def reuse_in(
    model: PreTrainedModel,
    forward: Callable[[], object],
    part: str | None = None,
    is_exact: bool | None = None,
) -> LayerReuse:
    """Return the reuse of a model's layers; its ``layers`` are empty if reuse changes results.

    A layer may need more of the layers below than their outputs: shared keys and values, a cache,
    or state of their modules. So one text is passed through the model for each layer with attention
    but the first: with all layers below it reused, the model has to output the same.

    Args:
        model: In eval mode; its layers call transformers' attention interface.
        forward: Runs the model on one text and returns its outputs.
        part: The part of the model whose heads are replaced, named as in ``attention_layers``.
        is_exact: The result of an earlier test of the same model; None runs the test.
    """
    modules = attention_layers(model, part).modules
    layers, positions = _sequential_layers(model, modules)
    if len(positions) < 2:
        return LayerReuse()
    if is_exact is None:
        try:
            is_exact = _is_exact(model, modules, layers, positions, forward)
        except Exception:
            # A layer misses something of the reused layers: any type of error may follow. If the
            # model itself is at fault, the next plain pass raises the error again.
            is_exact = False
    return LayerReuse(layers, positions) if is_exact else LayerReuse()


def _sequential_layers(
    model: PreTrainedModel, modules: Sequence[nn.Module]
) -> tuple[list[nn.Module], list[int]]:
    """Return the layers of the first module list that holds all attention modules, in their order
    and at most one in a layer, and the index of each one's layer. Both are empty if no list does.
    """
    for stack in model.modules():
        if not isinstance(stack, nn.ModuleList):
            continue
        index_of = {
            module: index for index, layer in enumerate(stack) for module in layer.modules()
        }
        indices = [index_of.get(module, -1) for module in modules]
        if indices[0] >= 0 and all(first < second for first, second in pairwise(indices)):
            return list(stack), indices
    return [], []


@torch.inference_mode()
def _is_exact(
    model: PreTrainedModel,
    modules: Sequence[nn.Module],
    layers: Sequence[nn.Module],
    positions: Sequence[int],
    forward: Callable[[], object],
) -> bool:
    """Return whether the model outputs the same with all layers below an attention reused, for each
    layer with attention but the first.
    """
    every_head = [*product(range(len(modules)), range(head_count(modules[0])))]
    with _layers_reused(layers, []) as computed:
        plain = forward()
    if [*computed] != [*range(len(layers))]:
        return False
    outputs = [*computed.values()]
    for position in positions[1:]:
        # Run a pass with other outputs first: state that it leaves in modules must have no effect.
        with routed(model, modules, rules_of(Zeros(), every_head)):
            forward()
        with _layers_reused(layers, outputs[:position]):
            if not _is_same(plain, forward()):
                return False
    return True


def _is_same(first: object, second: object) -> bool:
    """Return whether two passes output equal tensors, caches left out."""
    tensors = _tensors_of(first)
    others = _tensors_of(second)
    return len(tensors) == len(others) and all(
        tensor.shape == other.shape
        and torch.allclose(tensor, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        for tensor, other in zip(tensors, others, strict=True)
    )


def _tensors_of(outputs: object) -> list[Tensor]:
    """Return all tensors in the outputs of a pass or of layers; a pass's caches are left out."""
    if isinstance(outputs, Mapping):
        outputs = {name: value for name, value in outputs.items() if name not in _CACHES}
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


@contextmanager
def _layers_reused(
    layers: Sequence[nn.Module], reused: Sequence[object]
) -> Iterator[dict[int, object]]:
    """Make the first layers return ``reused`` without computing while the block runs.

    Yields a dict that fills with the outputs of the other layers, by index, in the order of their
    calls. It is emptied, and stays empty, once a layer is called a second time.
    """
    computed: dict[int, object] = {}
    is_sequential = True

    def returning(output: object) -> Forward:
        return lambda *inputs, **options: output

    def recording(index: int, forward: Forward) -> Forward:
        def call(*inputs: object, **options: object) -> object:
            nonlocal is_sequential
            output = forward(*inputs, **options)
            is_sequential = is_sequential and index not in computed
            computed[index] = output
            if not is_sequential:
                computed.clear()
            return output

        return call

    replaced_methods = [vars(layer).get("forward") for layer in layers]
    for index, layer in enumerate(layers):
        # The method alone is replaced: the module's hooks also run where it is reused.
        layer.forward = (
            returning(reused[index]) if index < len(reused) else recording(index, layer.forward)
        )
    try:
        yield computed
    finally:
        for layer, forward in zip(layers, replaced_methods, strict=True):
            if forward is None:
                del layer.forward
            else:
                layer.forward = forward
