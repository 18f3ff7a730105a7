"""The constants of an export: matrices that are read by slot, or weights by distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papa.attention.constants import ConstantMatrices
from papa.attention.distances import DistanceWeights
from papa.attention.product import masked_product
from papa.errors import ArtifactError
from papa.exporting.placement import InputLayout
from papa.spec import ConstantsKind
from papa.spec.orders import Head

ExportedConstants = ConstantMatrices | DistanceWeights
BY_DISTANCE = "relative by distance"
"""What a folder calls weights by distance."""
Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From the values of some heads, the columns of a batch and where inputs have tokens to what the
heads put out, in fixed steps."""


def kind_of(constants: ExportedConstants) -> ConstantsKind:
    """What cards call them."""
    return BY_DISTANCE if isinstance(constants, DistanceWeights) else constants.kind


def check_fits(
    constants: ExportedConstants, layers: int, heads: int, layout: InputLayout, name: str
) -> None:
    """Refuse constants of another encoder or another layout.

    Raises:
        ArtifactError: they are.
    """
    by_distance = isinstance(constants, DistanceWeights)
    if by_distance != (layout.slots is None):
        raise ArtifactError(
            "constants by distance belong to inputs whose tokens stay in their places, and "
            "constants by slot to inputs with slots: give a layout of the same kind"
        )
    expected = [layers, heads] if by_distance else [layers, heads, layout.slots, layout.slots]
    shape = list(constants.values.shape)
    if shape[: len(expected)] != expected:
        where = "" if by_distance else f" in {layout.slots} slots"
        raise ArtifactError(
            f"the constant matrices have the shape {shape}, expected {expected} for {name}{where}: "
            "rerun 'average' for them"
        )


def stored(constants: ExportedConstants, heads: Sequence[Head]) -> dict[str, Tensor]:
    """The tensors of the file: those of the constant heads, in their order."""
    layers, numbers = (list(part) for part in zip(*heads, strict=True))
    if isinstance(constants, DistanceWeights):
        return {
            "weights": constants.weights[layers, numbers].float().contiguous(),
            "ends": constants.ends[layers, numbers].float().contiguous(),
        }
    matrices = constants.matrices[layers, numbers].float().contiguous()
    return {"matrices": matrices, "seen": constants.seen.contiguous()}


def restored(
    tensors: Mapping[str, Tensor],
    heads: Sequence[Head],
    shape: tuple[int, int],
    layout: InputLayout,
    kind: ConstantsKind,
    path: Path,
) -> ExportedConstants:
    """The inverse of ``stored``; heads that are not constant have zeros.

    Args:
        tensors: of the file.
        heads: the constant heads.
        shape: layers and heads of the encoder.
        layout: where tokens belong.
        kind: of the matrices.
        path: for messages.

    Raises:
        ArtifactError: the tensors do not fit the encoder, the heads or the layout.
    """
    for layer, head in heads:
        if not (layer < shape[0] and head < shape[1]):
            raise ArtifactError(
                f"papa.json names head {head} of layer {layer}, but the encoder in {path.parent} "
                f"has {shape[0]} layers of {shape[1]} heads: export the encoder again"
            )
    slots = layout.slots
    expected: dict[str, tuple[int | None, ...]] = (
        {"weights": (len(heads), None), "ends": (len(heads), 2)}
        if slots is None
        else {"matrices": (len(heads), slots, slots), "seen": (slots, slots)}
    )
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
    return ConstantMatrices(of_all_heads("matrices"), tensors["seen"], kind)


def product_at(
    constants: ExportedConstants, layer: int, heads: Int[Tensor, " constant"]
) -> Product:
    """What some heads of a layer put out, in fixed steps, as a graph can hold."""
    if isinstance(constants, DistanceWeights):
        return partial(constants.product, layer, heads)
    matrices = constants.matrices[layer].index_select(0, heads)

    def product(
        value: Float[Tensor, "batch constant m width"],
        columns: Int[Tensor, " m"],
        real: Bool[Tensor, "batch m"],
    ) -> Float[Tensor, "batch constant m width"]:
        at_columns = matrices.index_select(1, columns).index_select(2, columns)
        return masked_product(at_columns, value, real)

    return product
