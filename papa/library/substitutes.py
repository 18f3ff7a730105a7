"""What takes attention's place, from what a user names or supplies: for in-memory models, and as
matrices of a loaded encoder. The names are the entries of ``papa.spec.substitutes``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float
from pydantic import ValidationError
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from papa.errors import ArtifactError, DataError, SpecError, in_one_line, joined, nearest_first
from papa.heads.attention_layers import attention_layers, head_count
from papa.heads.constants import ConstantMatrices, check_length, control, derived
from papa.heads.observers import ObservedModel, observer_of
from papa.heads.substitutes import FunctionMatrices, Substitute
from papa.library.batches import Data, batches_of
from papa.library.encoder import Encoder
from papa.native.batches import InMemoryTexts
from papa.native.passes import NativeHead
from papa.scores.custom import custom_name
from papa.spec import SubstituteSpec
from papa.spec.substitutes import SUBSTITUTES

RequestedMatrices: TypeAlias = str | ConstantMatrices | Tensor | np.ndarray
"""A name that ``papa.constants`` takes, or matrices [layers, heads, slots, slots]."""
RequestedSubstitute: TypeAlias = (
    str | Mapping[str, Any] | Substitute | Tensor | np.ndarray | Callable[[int, int, int], Tensor]
)
"""What an in-memory model's heads may output: a name, or a mapping with the key ``kind`` and
parameters; constant matrices [layers, heads, slots, slots]; or a function of (layer, head, slots)
that returns a matrix [slots, slots].
"""


def substitute_for(
    model: nn.Module,
    requested: RequestedSubstitute,
    data: Data = None,
    seed: int = 0,
    tokenizer: PreTrainedTokenizerBase | None = None,
    part: str | None = None,
) -> Substitute:
    """Return the substitute that a user requested for an in-memory model, or a part of it; ``data``
    is the text of those that are computed from text, and the seed is of what is drawn.

    Raises:
        SpecError: There is no such substitute, or a parameter is wrong.
        ArtifactError: The matrices do not fit the model.
    """
    layers = attention_layers(model, part)
    pretrained = cast("PreTrainedModel", model)  # Its layers were found.
    device = pretrained.device
    heads = head_count(layers.modules[0])
    if isinstance(requested, ConstantMatrices):
        checked_matrices(requested.matrices, len(layers.modules), heads)
    if isinstance(requested, Tensor | np.ndarray):
        matrices = checked_matrices(requested, layers.layer_count, heads)[layers.numbers]
        every_entry = torch.ones(matrices.shape[-2:], dtype=torch.bool)
        requested = ConstantMatrices(matrices, every_entry, "custom")
    if isinstance(requested, Substitute):
        return requested.to(device)
    if callable(requested):
        function = requested
        return FunctionMatrices(
            lambda layer, head, slots: function(layers.numbers[layer], head, slots)
        )
    name, parameters = _name_and_parameters(requested)
    entry = SUBSTITUTES[name]
    if entry.rule:
        rule: Substitute = resolve_name(entry.rule)(**parameters)
        return rule
    if entry.origin == "slots":
        return _of_slots(name, parameters, heads)
    if data is None:
        raise DataError(
            f"the substitute '{name}' is computed from text: give texts in data=, constant "
            "matrices such as papa.average returns, or another substitute such as 'zeros'"
        )
    # Whatever batches the texts come in, the substitute is the same.
    texts = InMemoryTexts.from_batches(batches_of(data, model, tokenizer), pretrained)
    native = NativeHead(pretrained, texts, part=part)
    observer = observer_of(
        name, ObservedModel(len(layers.modules), heads, device=device, seed=seed)
    )
    native.observe(observer.observe)
    return observer.substitute().to(device)


def check_substitute(requested: RequestedSubstitute, average_slots: int, tokens: int) -> None:
    """Raise an error if a requested substitute is no name of one, or if it is matrices of fewer
    slots than these tokens of a text; those of an average are as many as ``average_slots``.
    """
    if _name_of(requested) == "average":
        check_length(tokens, average_slots)
    matrices = requested.matrices if isinstance(requested, ConstantMatrices) else requested
    if isinstance(matrices, Tensor | np.ndarray):
        check_length(tokens, matrices.shape[-1])


def substitute_names(substitutes: Sequence[RequestedSubstitute]) -> list[str]:
    """Return what tables call each requested substitute, a name that no other has."""
    bases: list[str] = []
    names: list[str] = []
    for requested in substitutes:
        if isinstance(requested, str):
            name = _specified({"kind": requested}).label
        elif isinstance(requested, Mapping):
            name = _specified(requested).label
        else:
            name = custom_name(requested).rpartition(":")[2]
        bases.append(name)
        count = bases.count(name)
        names.append(f"{name}-{count}" if count > 1 else name)
    return names


def is_drawn(requested: RequestedSubstitute) -> bool:
    """Return whether what a user requested for an in-memory model is drawn by a seed."""
    name = _name_of(requested)
    return name is not None and SUBSTITUTES[name].drawn


def _name_of(requested: RequestedSubstitute) -> str | None:
    """Return the name of a requested substitute; None of matrices and functions."""
    if isinstance(requested, Substitute | Tensor | np.ndarray) or callable(requested):
        return None
    return _name_and_parameters(requested)[0]


def _name_and_parameters(requested: object) -> tuple[str, dict[str, int]]:
    """Return the name and the parameters of a substitute that an in-memory model may have."""
    settings = dict(requested) if isinstance(requested, Mapping) else {"kind": requested}
    name = str(settings.pop("kind", None))
    names = [known for known, entry in SUBSTITUTES.items() if entry.in_memory]
    if name not in names:
        known = nearest_first(name, names)
        raise SpecError(
            f"there is no substitute {requested!r} for an in-memory model: give one of "
            f"{known}, or matrices"
        )
    parameters = _specified({"kind": name, **settings}).parameters
    unknown = {key for key, value in settings.items() if value is not None} - parameters.keys()
    if unknown:
        raise SpecError(
            f"substitute {requested!r}: {joined(sorted(unknown))} is for studies only: leave it out"
        )
    return name, parameters


def _specified(settings: Mapping[str, object]) -> SubstituteSpec:
    """Return a substitute as a study has it. Raises a SpecError where it cannot have it."""
    try:
        return SubstituteSpec.model_validate(settings)
    except ValidationError as error:
        raise SpecError(f"substitute '{settings.get('kind')}': {in_one_line(error)}") from None


def _of_slots(name: str, parameters: Mapping[str, int], heads: int) -> Substitute:
    """Compute the matrices of a control for as many slots as texts have."""
    matrices_of = lru_cache(2)(
        lambda slots: control(name, 1, heads, slots, **parameters).matrices[0]
    )

    def matrix(layer: int, head: int, slots: int) -> Float[Tensor, "slots slots"]:
        # Entries depend on their own slots alone, so one matrix serves texts of like length.
        return matrices_of(2 ** (slots - 1).bit_length())[head, :slots, :slots]

    return FunctionMatrices(matrix)


def checked_matrices(values: object, layers: int, heads: int, slots: int | None = None) -> Tensor:
    """Return constant matrices as a tensor. Raises an ArtifactError where they are no finite
    numbers of this shape; ``slots`` None takes any number.
    """
    matrices = torch.as_tensor(values)
    size = slots or matrices.shape[-1]
    expected = [layers, heads, size, size]
    are_numbers = matrices.is_floating_point() and bool(matrices.isfinite().all())
    if list(matrices.shape) != expected or not are_numbers:
        raise ArtifactError(
            f"the constant matrices are {matrices.dtype} of shape {list(matrices.shape)}, expected "
            f"finite floating-point numbers {expected} (layers, heads, slots, slots)"
        )
    return matrices


def compute_matrices(
    kind: str, encoder: Encoder, average: object = None, **parameters: int
) -> ConstantMatrices:
    """Return constant matrices of a loaded encoder by their name, with parameters as in a study: a
    control, or what is derived from an average. Raises a SpecError where there are no such
    matrices, a parameter is wrong, or the average is missing.
    """
    checked = _specified({"kind": kind, **parameters}).parameters
    entry = SUBSTITUTES[kind]
    if entry.origin == "slots":
        return control(kind, encoder.layers, encoder.heads, encoder.slots, **checked)
    if entry.origin != "average" or not entry.function:
        raise SpecError(
            f"no matrices are computed from the name '{kind}': give papa.average(encoder, texts), "
            "another substitute such as 'zeros', or the name to papa.measure"
        )
    if not isinstance(average, ConstantMatrices) or average.special is None:
        raise SpecError(
            f"'{kind}' is computed from an average: give average=papa.average(encoder, data)"
        )
    return derived(kind, constants_for(encoder, average), average.special, **checked)


def constants_for(encoder: Encoder, requested: object) -> ConstantMatrices:
    """Return the constant matrices, by name or [L, H, S, S], that a user requested for a loaded
    encoder.

    Raises:
        SpecError: The name is of no matrices.
        ArtifactError: The matrices do not fit the encoder, or are the average of another one.
    """
    if isinstance(requested, str):
        return compute_matrices(requested, encoder)
    supplied = requested if isinstance(requested, ConstantMatrices) else None
    values = requested if supplied is None else supplied.matrices
    slots = encoder.slots
    matrices = checked_matrices(values, encoder.layers, encoder.heads, slots).detach().float().cpu()
    if supplied is None:
        return ConstantMatrices(matrices, torch.ones(slots, slots, dtype=torch.bool), "average")
    if supplied.encoder_digest not in (None, encoder.reference.digest):
        raise ArtifactError(
            "the constant matrices are an average over another encoder than "
            f"{encoder.reference.display}: average over this encoder"
        )
    return replace(supplied, matrices=matrices, seen=supplied.seen.cpu())
