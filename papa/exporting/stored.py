"""What a folder stores of an encoder with constant heads: weights without the rows of queries, keys
and values that no head needs, and the constants of those heads alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from papa.attention.constants import ConstantMatrices, DistanceWeights
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import Constants
from papa.encoders.supported import family_of
from papa.errors import EncoderError
from papa.exporting.placement import InputLayout
from papa.spec import ConstantsKind
from papa.spec.orders import Head
from papa.spec.values import OUTPUTS
from papa.storage.artifacts import check_form

_SPLIT = ("query", "key", "value")
"""What one map is taken apart into."""


def needed_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that hidden states depend on, all but the pooler's, by the names that the
    published files give them.
    """
    weights = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.startswith("pooler.")
    }
    config: Any = model.config
    family = family_of(config.model_type)
    if family is None or family.stored is None:
        return weights
    for name, module in model.named_modules():
        if module in {*family.attentions(model)} and hasattr(module, "query"):
            split = tuple(f"{name}.{part}." for part in _SPLIT)
            weights = {key: own for key, own in weights.items() if not key.startswith(split)}
            weights |= {f"{name}.{key}": own for key, own in family.stored(module).items()}
    return weights


def without_constant_heads(
    model: nn.Module, heads: Sequence[Head], kind: ConstantsKind
) -> dict[str, Tensor]:
    """The needed weights; rows of maps to queries and keys, and to values if outputs are constant,
    are left out where all their heads are constant.

    Where layers share a map, a head's rows go if it is constant in each of them. Maps that hold
    queries, keys and values in one stay whole.
    """
    weights = needed_weights(model)
    for name, kept in rows_kept(model, heads, kind):
        weights[name] = weights[name][kept].contiguous()
    return weights


def with_all_rows(
    model: nn.Module, heads: Sequence[Head], kind: ConstantsKind, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The inverse of ``without_constant_heads``; rows that were left out are 0 and never used.

    Of the model nothing but the architecture is read: it may lie on the meta device.
    """
    kept_rows, full = dict(rows_kept(model, heads, kind)), {}
    for name, like in needed_weights(model).items():
        rows = kept_rows.get(name)
        shape = like.shape if rows is None else (int(rows.sum()), *like.shape[1:])
        check_form(**{name: (tuple(weights[name].shape), tuple(shape))})
        full[name] = weights[name]
        if rows is not None:
            full[name] = torch.zeros(like.shape, dtype=weights[name].dtype)
            full[name][rows] = weights[name]
    return full


def rows_kept(
    model: nn.Module, heads: Sequence[Head], kind: ConstantsKind
) -> Iterator[tuple[str, Tensor]]:
    """The names of weights that lose rows, and which rows they keep."""
    config: Any = model.config
    family = family_of(config.model_type)
    if family is None:
        raise EncoderError(
            f"architecture '{config.model_type}' is not supported: see 'papa models'"
        )
    names = {module: name for name, module in model.named_modules()}
    layers_of: dict[nn.Module, list[int]] = {}
    for layer, module in enumerate(family.attentions(model)):
        layers_of.setdefault(module, []).append(layer)
    constant, count = set(heads), config.num_attention_heads
    projections = (*family.projections, *([family.value] if kind in OUTPUTS else []))
    if family.stored is not None:
        projections = tuple(name for name in projections if name not in _SPLIT)
    for module, layers in layers_of.items():
        needed = [any((layer, head) not in constant for layer in layers) for head in range(count)]
        for projection in projections:
            linear = getattr(module, projection, None)
            if all(needed) or not isinstance(linear, nn.Linear):
                continue
            rows = torch.tensor(needed).repeat_interleave(linear.out_features // count)
            for part in ("weight", "bias"):
                if getattr(linear, part, None) is not None:
                    yield f"{names[linear]}.{part}", rows


def stored_constants(constants: Constants, heads: Sequence[Head]) -> dict[str, Tensor]:
    """The tensors of the file: those of the constant heads, in their order."""
    layers, numbers = (list(part) for part in zip(*heads, strict=True))
    shared = {}
    if isinstance(constants, DistanceWeights):
        of_heads = {"weights": constants.weights, "ends": constants.ends}
    elif isinstance(constants, ConstantOutputs):
        of_heads, shared = {"outputs": constants.outputs}, {"place": constants.index.contiguous()}
    else:
        of_heads, shared = {"matrices": constants.matrices}, {"seen": constants.seen.contiguous()}
    own = {name: of[layers, numbers].float().contiguous() for name, of in of_heads.items()}
    return own | shared


def restored_constants(
    tensors: Mapping[str, Tensor],
    heads: Sequence[Head],
    shape: tuple[int, int],
    layout: InputLayout,
    kind: ConstantsKind,
) -> Constants:
    """The inverse of ``stored_constants``; heads that are not constant have zeros."""
    slots = layout.slots

    def of_all_heads(name: str, *sizes: int) -> Tensor:
        own = tensors[name]
        check_form(**{name: (tuple(own.shape[1 : 1 + len(sizes)]), sizes)})
        full = torch.zeros(*shape, *own.shape[1:])
        for (layer, head), values in zip(heads, own, strict=True):
            full[layer, head] = values
        return full

    if slots is None:
        return DistanceWeights(of_all_heads("weights"), of_all_heads("ends", 2))
    if kind in OUTPUTS:
        check_form(place=(tuple(tensors["place"].shape), (slots + 1, slots)))
        return ConstantOutputs(of_all_heads("outputs"), tensors["place"], kind)
    check_form(seen=(tuple(tensors["seen"].shape), (slots, slots)))
    return ConstantMatrices(of_all_heads("matrices", slots, slots), tensors["seen"], kind)
