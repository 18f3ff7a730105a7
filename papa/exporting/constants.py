"""The constants of an export: matrices that are read by slot, weights by distance, or outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.distances import DistanceWeights
from papa.attention.outputs import ConstantOutputs
from papa.attention.product import masked_product
from papa.attention.replacement import Constants
from papa.errors import ArtifactError
from papa.exporting.placement import InputLayout
from papa.spec import ConstantsKind
from papa.spec.orders import Head
from papa.spec.values import OUTPUTS

BY_DISTANCE = "relative by distance"
"""What a folder calls weights by distance."""
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From the values of some heads, the columns of a batch and where inputs have tokens to what the
heads put out, in fixed steps."""


def kind_of(constants: Constants) -> ConstantsKind:
    """What cards call them."""
    return BY_DISTANCE if isinstance(constants, DistanceWeights) else constants.kind


def check_fits(
    constants: Constants, layers: int, heads: int, layout: InputLayout, name: str
) -> None:
    """Refuse constants of another encoder or another layout."""
    by_distance = isinstance(constants, DistanceWeights)
    if by_distance != (layout.slots is None):
        raise ArtifactError(
            "constants by distance belong to inputs whose tokens stay in their places, and "
            "other constants to inputs with slots: give a layout of the same kind"
        )
    shape = list[int | None](constants.values.shape)
    expected: list[int | None] = [layers, heads]
    if isinstance(constants, ConstantMatrices):
        expected += [layout.slots, layout.slots]
    elif isinstance(constants, ConstantOutputs):
        shape[2:], expected = constants.index.shape[1:], [*expected, layout.slots]
    if shape[: len(expected)] != expected:
        where = "" if by_distance else f" in {layout.slots} slots"
        raise ArtifactError(
            f"the constants have the shape {shape}, expected {expected} for {name}{where}: "
            "rerun 'average' for them"
        )


def stored(constants: Constants, heads: Sequence[Head]) -> dict[str, Tensor]:
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


def restored(
    tensors: Mapping[str, Tensor],
    heads: Sequence[Head],
    shape: tuple[int, int],
    layout: InputLayout,
    kind: ConstantsKind,
    path: Path,
) -> Constants:
    """The inverse of ``stored``; heads that are not constant have zeros."""
    for layer, head in heads:
        if not (layer < shape[0] and head < shape[1]):
            raise ArtifactError(
                f"papa.json names head {head} of layer {layer}, but the encoder in {path.parent} "
                f"has {shape[0]} layers of {shape[1]} heads: export the encoder again"
            )
    slots, count = layout.slots, len(heads)
    expected: dict[str, tuple[int | None, ...]]
    if slots is None:
        expected = {"weights": (count, None), "ends": (count, 2)}
    elif kind in OUTPUTS:
        expected = {"outputs": (count, None, None), "place": (slots + 1, slots)}
    else:
        expected = {"matrices": (count, slots, slots), "seen": (slots, slots)}
    for name, sizes in expected.items():
        found = tuple(tensors[name].shape) if name in tensors else ()
        if len(found) != len(sizes) or any(
            size not in (None, own) for size, own in zip(sizes, found, strict=True)
        ):
            raise ArtifactError(
                f"{path} holds {name} of shape {list(found)}, expected {list(sizes)} for the "
                "heads and slots in papa.json: export the encoder again"
            )

    def of_all_heads(name: str) -> Tensor:
        own = tensors[name]
        full = torch.zeros(*shape, *own.shape[1:])
        for (layer, head), values in zip(heads, own, strict=True):
            full[layer, head] = values
        return full

    if slots is None:
        return DistanceWeights(of_all_heads("weights"), of_all_heads("ends"))
    if kind in OUTPUTS:
        return ConstantOutputs(of_all_heads("outputs"), tensors["place"], kind)
    return ConstantMatrices(of_all_heads("matrices"), tensors["seen"], kind)


def product_at(constants: Constants, layer: int, heads: Int[Tensor, " constant"]) -> Product:
    """What some heads of a layer put out, in fixed steps, as a graph can hold."""
    if isinstance(constants, DistanceWeights):
        return partial(constants.product, layer, heads)
    if isinstance(constants, ConstantOutputs):
        return lambda value, columns, real: constants.at(
            layer, heads, real.sum(dim=1), columns[None]
        )
    matrices = constants.matrices[layer].index_select(0, heads)

    def product(
        value: Float[Tensor, "batch constant m width"],
        columns: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
    ) -> Float[Tensor, "batch constant m width"]:
        at_columns = matrices.index_select(1, columns).index_select(2, columns)
        return masked_product(at_columns, value, real)

    return product
