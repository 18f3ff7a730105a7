"""What the library takes as constants: an average, a control by its name, arrays and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from papa.attention.constants import ConstantMatrices, control, derived
from papa.encoders.finite import sum_is_finite
from papa.errors import ArtifactError, SpecError, meant
from papa.library.encoder import TextEncoder, check_loaded
from papa.spec import ConstantsSpec
from papa.spec.constants import CONTROLS, DERIVED, PARAMETERS, most_of
from papa.study.stages.constants import GivenMatrices
from papa.study.stages.constants import given as keep_given
from papa.study.step import Step

Constants: TypeAlias = Any
"""What ``average`` or ``constants`` gave, the name of a control, or floating-point matrices of
one's own: a tensor or an array [layers, heads, slots, slots].
"""


def constants(
    kind: str,
    encoder: TextEncoder,
    *,
    average: ConstantMatrices | None = None,
    **parameters: int,
) -> ConstantMatrices:
    """Constant matrices by their name: a control, which depends on no text (paper, Section 5.2), or
    what is made of an average (docs/method.md).

    Examples:
        >>> import papa
        >>> encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=32)
        >>> papa.constants("toeplitz", encoder).matrices[0, 0, 0, :4]
        tensor([1.0000, 0.5000, 0.3333, 0.2500])

    Args:
        kind: ``identity``, ``toeplitz``, ``zeros`` (the head pruned), ``previous``, ``next``,
            ``local`` or ``fibonacci``; of an average ``low_rank`` or ``relative``.
        average: what ``low_rank`` and ``relative`` are made of.
        parameters: ``window`` of ``local``, ``rank`` and ``largest`` of ``low_rank``.

    Returns:
        ``matrices``, float32 [layers, heads, slots, slots].

    Raises:
        ArtifactError: the average is another encoder's, or for another number of slots.
        SpecError: there are no such constants, they take no such value, or need an average.
    """
    check_loaded(encoder, decoder=True)
    every = (*CONTROLS, *DERIVED)
    if kind not in every:
        raise SpecError(
            f"there are no constants '{kind}' of this call{meant(kind, every)}: take one of "
            f"{', '.join(every)}, or papa.average"
        )
    most, least = most_of(encoder.slots), PARAMETERS.get(kind, {})
    for name, value in parameters.items():
        if name not in least or value not in range(min(least[name], 1), most[name] + 1):
            takes = [f"{one} from {min(own, 1)} to {most[one]}" for one, own in least.items()]
            raise SpecError(
                f"constants '{kind}' takes {' and '.join(takes) or 'no parameter'} here, found "
                f"{name}={value!r}"
            )
    if kind in CONTROLS:
        return control(kind, encoder.layers, encoder.heads, encoder.slots, **parameters)
    if not isinstance(average, ConstantMatrices) or average.special is None:
        raise SpecError(
            f"constants '{kind}' are made of an average: give average=papa.average(encoder, texts)"
        )
    return derived(kind, constants_for(encoder, average), average.special, **parameters)


def constants_for(encoder: TextEncoder, given: Constants) -> ConstantMatrices:
    """What was given as constant matrices of this encoder."""
    if isinstance(given, str):
        return constants(given, encoder)
    if not isinstance(given, ConstantMatrices | Tensor | np.ndarray):
        raise SpecError(
            f"constants is a {type(given).__name__}, expected ConstantMatrices, a tensor or array "
            f"[layers, heads, slots, slots], or one of {', '.join(CONTROLS)}"
        )
    held = given if isinstance(given, ConstantMatrices) else None
    matrices: Any = held.matrices if held else given
    shape, slots = list(matrices.shape), encoder.slots
    dtype = str(matrices.dtype).removeprefix("torch.")
    if shape != (expected := [encoder.layers, encoder.heads, slots, slots]):
        raise ArtifactError(
            f"the constant matrices have the shape {shape}, expected {expected} (layers, heads, "
            f"slots, slots) for {encoder.reference.display}"
        )
    if "float" not in dtype:
        raise ArtifactError(f"the constant matrices are of dtype {dtype}, expected floating point")
    matrices = torch.as_tensor(matrices).detach()
    if not sum_is_finite(matrices):
        for entry in (~matrices.isfinite()).nonzero()[:1].tolist():
            raise ArtifactError(
                f"the constant matrices hold {matrices[tuple(entry)].item()} at {entry} (layer, "
                "head, from slot, to slot), expected numbers"
            )
    if held and held.encoder_digest not in (None, encoder.reference.digest):
        raise ArtifactError(
            "the constant matrices were averaged over the attention of another encoder than "
            f"{encoder.reference.display}: average over this one's"
        )
    seen = torch.ones(slots, slots, dtype=torch.bool)
    return held or ConstantMatrices(matrices.float(), seen, "average")


def given_step(encoder: TextEncoder, given: Constants) -> Step:
    """What was given, as a step of a study."""
    found = _as_kept(constants_for(encoder, given))
    return keep_given("given constants", encoder.reference, GivenMatrices(found))


def own_constants(
    encoder: TextEncoder, given: Any
) -> tuple[list[Any], dict[str, ConstantMatrices]]:
    """Constants as a study has them, in which a user's own matrices are of a kind ``own``,
    ``own-2``, …; and those matrices by that kind.
    """
    if not isinstance(given, list | tuple) or not given:
        what = "an empty list" if given == [] else f"a {type(given).__name__}"
        raise SpecError(f"constants is {what}, expected a list, such as ['average']")
    kinds, own = list[Any](), dict[str, ConstantMatrices]()
    for one in given:
        if not isinstance(one, str | Mapping):
            kind = f"own-{len(own) + 1}" if own else "own"
            own[kind] = _as_kept(constants_for(encoder, one))
            one = ConstantsSpec.model_construct(kind=kind)
        kinds.append(one)
    return kinds, own


def _as_kept(constants: ConstantMatrices) -> ConstantMatrices:
    """As a study keeps them."""
    matrices = constants.matrices.detach().float().cpu()
    return replace(constants, matrices=matrices, seen=constants.seen.cpu())
