"""Layers below the first one that changed are computed once: later passes reuse their outputs.

Replacing heads of a layer leaves all layers below it as they were. So of two passes over the same
batch, whose replaced heads are the same below some layer, the second takes what the layers below
it output from the first. The results are those of plain passes; no approximation is made.
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
"""Of layer outputs that are kept, of all batches together; what does not fit runs plainly."""
_CACHES = ("past_key_values", "mems", "state", "cache_params")
"""Outputs that layers which are not computed leave out; no answer is read from them."""
_TOLERANCE = 1e-6


@dataclass
class LayerReuse:
    """Passes of one model over batches, which share the lower layers.

    Attributes:
        layers: The model's layers, in the order in which a pass calls them; none where the model
            does not allow reuse, so that every pass is a plain one.
        positions: The index in ``layers`` of each layer with attention: heads count by these.
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
        """Return what a pass outputs, and keep what its layers output for the next one.

        ``batch`` names the model's inputs: the same name means equal inputs. ``heads``, (layer with
        attention, head), are all that ``forward`` replaces; with gradients nothing is reused.
        """
        if not self.layers or torch.is_grad_enabled():
            return forward()
        replaced = frozenset(heads)
        before = self._recordings.pop(batch, None)
        reused: Sequence[object] = []
        if before is not None:
            is_alike = before.substitute is substitute
            changed = before.heads ^ replaced if is_alike else before.heads | replaced
            reused = before.outputs[: self._layers_below(changed)]
        with _layers_reused(self.layers, reused) as computed:
            outputs = forward()
        # A layer that is called twice, or not at all, would be given what another call output.
        if [*computed] == [*range(len(reused), len(self.layers))]:
            self._keep(batch, _Recording(substitute, replaced, [*reused, *computed.values()]))
        return outputs

    def forget(self, batch: Hashable) -> None:
        """Drop what is kept of a batch that no later pass is over."""
        self._recordings.pop(batch, None)

    def _layers_below(self, changed: Collection[Head]) -> int:
        """Return how many layers lie below the first of these heads."""
        # The last attention is always computed: a pass without any would look like a model whose
        # attention does not come by.
        return self.positions[min((layer for layer, _ in changed), default=-1)]

    def _keep(self, batch: Hashable, recording: _Recording) -> None:
        stored = sum(earlier.size for earlier in self._recordings.values())
        if stored + recording.size <= _MOST_BYTES:
            self._recordings[batch] = recording


@dataclass(frozen=True)
class _Recording:
    """What every layer output in one pass, while ``heads`` output a substitute."""

    substitute: object
    heads: frozenset[Head]
    outputs: Sequence[object]

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in _tensors_of(list(self.outputs)))


def reuse_in(
    model: PreTrainedModel,
    forward: Callable[[], object],
    part: str | None = None,
    is_exact: bool | None = None,
) -> LayerReuse:
    """Return what reuses the layers of a model; it runs plain passes where a model allows no more.

    Layers may depend on each other in more ways than by what they output: by keys and values that
    they share, a cache, or state of their modules. So every layer is tried on one text: the model
    has to output the same with all layers below it reused.

    Args:
        model: In eval mode, behind the attention interface.
        forward: Calls the model on one text, and returns what it outputs.
        part: The part whose heads are replaced, as of ``attention_layers``.
        is_exact: What trying all layers has shown already; None tries them.
    """
    modules = attention_layers(model, part).modules
    layers, positions = _sequential_layers(model, modules)
    if len(positions) < 2:
        return LayerReuse()
    if is_exact is None:
        try:
            is_exact = _is_exact(model, modules, layers, positions, forward)
        except Exception:
            # Whatever it is that a layer misses of the layers below it. A fault of the model itself
            # comes again in the plain pass.
            is_exact = False
    return LayerReuse(layers, positions) if is_exact else LayerReuse()


def _sequential_layers(
    model: PreTrainedModel, modules: Sequence[nn.Module]
) -> tuple[list[nn.Module], list[int]]:
    """Return the list of layers that holds all attention modules, one a layer at most, and the
    index of each attention module in it; nothing where there is no such list.
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
    """Return whether passes with reused layers output what the plain pass does, for each layer."""
    every_head = [*product(range(len(modules)), range(head_count(modules[0])))]
    with _layers_reused(layers, []) as computed:
        plain = forward()
    if [*computed] != [*range(len(layers))]:
        return False
    outputs = [*computed.values()]
    for position in positions[1:]:
        # What a module keeps to itself is of this other pass from here on.
        with routed(model, modules, rules_of(Zeros(), every_head)):
            forward()
        with _layers_reused(layers, outputs[:position]):
            if not _is_same(plain, forward()):
                return False
    return True


def _is_same(first: object, second: object) -> bool:
    """Return whether two passes output the same tensors, but for caches."""
    tensors = _tensors_of(first)
    others = _tensors_of(second)
    return len(tensors) == len(others) and all(
        tensor.shape == other.shape
        and torch.allclose(tensor, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        for tensor, other in zip(tensors, others, strict=True)
    )


def _tensors_of(outputs: object) -> list[Tensor]:
    """Return all tensors in what a pass or layers output, but for those of caches."""
    if isinstance(outputs, Mapping):
        outputs = {name: value for name, value in outputs.items() if name not in _CACHES}
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


@contextmanager
def _layers_reused(
    layers: Sequence[nn.Module], reused: Sequence[object]
) -> Iterator[dict[int, object]]:
    """Make the first layers return ``reused`` without computing while the block runs. Yields the
    outputs of the others by their index, in the order in which they are called; nothing after a
    second call of a layer.
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
        # Not the module's hooks, which observe layers that are reused as they do others.
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
