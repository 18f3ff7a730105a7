"""What the library takes as constants: an average, a control by its name, arrays and tensors."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from papa.attention.constants import ConstantMatrices, control
from papa.encoders.finite import sum_is_finite
from papa.errors import ArtifactError, SpecError, joined, meant
from papa.library.encoder import TextEncoder
from papa.spec.controls import CONTROLS
from papa.spec.decoders import OF_DECODERS
from papa.spec.derived import DERIVED, parameters_of

Matrices: TypeAlias = Any
"""A tensor or an array [layers, heads, slots, slots] of floating point."""
Constants: TypeAlias = ConstantMatrices | str | Matrices
"""``ConstantMatrices``, the name of a control, or matrices of one's own."""
_OF_TEXT = {
    "average": "is taken over texts: give papa.average(encoder, texts)",
    "trained": "is trained next to a probe: measure it with constants=['trained'] of papa.measure",
    "mean_qk": "is taken over texts: measure it with constants=['mean_qk'] of papa.measure",
    **{
        kind: f"is for decoders: give papa.{kind.title()}() to papa.ablated" for kind in OF_DECODERS
    },
    **{
        kind: f"is made of an average: measure it with constants=['{kind}'] of papa.measure"
        for kind in DERIVED
    },
}


def constants(kind: str, encoder: TextEncoder, **parameters: int) -> ConstantMatrices:
    """A control: constant matrices that depend on no text (paper, Section 5.2; docs/method.md).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> papa.constants("toeplitz", encoder).matrices[0, 0, 0, :4]
        tensor([1.0000, 0.5000, 0.3333, 0.2500])

    Args:
        kind: ``identity``, ``toeplitz``, ``zeros`` (the head pruned), ``previous``, ``next``,
            ``local`` or ``fibonacci``.
        encoder: for whose layers, heads and slots.
        parameters: the kind's own, as in a study: ``window`` of ``local``.

    Raises:
        SpecError: there is no such control, or it takes no such value.
    """
    if kind not in CONTROLS:
        wrong = (
            f"'{kind}' {_OF_TEXT[kind]}" if kind in _OF_TEXT else f"there are no constants '{kind}'"
        )
        raise SpecError(f"{wrong}{meant(kind, CONTROLS)}, or one of {', '.join(CONTROLS)}")
    known, most = parameters_of(kind), encoder.slots - 1
    for name, value in parameters.items():
        if name not in known or not isinstance(value, int) or not 0 < value <= most:
            takes = f"{joined(known)} from 1 to {most}" if known else "no parameter"
            raise SpecError(f"constants '{kind}' takes {takes} here, found {name}={value!r}")
    return control(kind, encoder.layers, encoder.heads, encoder.slots, **parameters)


def constants_for(encoder: TextEncoder, given: Constants) -> ConstantMatrices:
    """What was given as constant matrices of this encoder.

    Raises:
        ArtifactError: it is of another encoder, another shape or another dtype, or holds NaN or
            infinity.
        SpecError: it is nothing of the kind.
    """
    if isinstance(given, str):
        return constants(given, encoder)
    if not isinstance(given, ConstantMatrices):
        matrices = _tensor(given)
        _check(encoder, matrices)
        return ConstantMatrices(
            matrices, torch.ones(encoder.slots, encoder.slots, dtype=torch.bool), "average"
        )
    _check(encoder, given.matrices)
    if given.encoder_digest not in (None, encoder.reference.digest):
        raise ArtifactError(
            "the constant matrices were averaged over the attention of another encoder than "
            f"{encoder.reference.display}: average over this one's"
        )
    return given


def _tensor(given: Matrices) -> Tensor:
    if not isinstance(given, Tensor | np.ndarray):
        raise SpecError(
            f"constants is a {type(given).__name__}, expected ConstantMatrices, a tensor or array "
            f"[layers, heads, slots, slots], or one of {', '.join(CONTROLS)}"
        )
    floating = given.is_floating_point() if isinstance(given, Tensor) else given.dtype.kind == "f"
    if not floating:
        dtype = str(given.dtype).removeprefix("torch.")
        raise ArtifactError(
            f"the constant matrices are of dtype {dtype}, expected floating point: convert them"
        )
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(np.ascontiguousarray(given, dtype=np.float32))
    return given.detach().float()


def _check(encoder: TextEncoder, matrices: Tensor) -> None:
    shape, slots = list(matrices.shape), encoder.slots
    expected = [encoder.layers, encoder.heads, slots, slots]
    if len(shape) == 4 and shape == [*expected[:2], shape[3], shape[3]] != expected:
        raise ArtifactError(
            f"the constant matrices are for {shape[3]} slots and the encoder was loaded with "
            f"{slots}: load it with slots={shape[3]}, or average again"
        )
    if shape != expected:
        raise ArtifactError(
            f"the constant matrices have the shape {shape}, expected {expected} for "
            f"{encoder.reference.display}: give a matrix for every head"
        )
    if not sum_is_finite(matrices):
        for place in (~matrices.isfinite()).nonzero()[:1].tolist():
            raise ArtifactError(
                f"the constant matrices hold {matrices[tuple(place)].item()} at {place} (layer, "
                "head, from slot, to slot), expected numbers: look at where they come from"
            )
