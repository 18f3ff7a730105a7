"""An encoder's weights without the rows of queries, keys and values that no head needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from papa.encoders.supported import family_of
from papa.errors import ArtifactError, EncoderError
from papa.spec import ConstantsKind
from papa.spec.orders import Head
from papa.spec.values import OUTPUTS

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

    Args:
        model: the architecture; its own weights are not read and may lie on the meta device.
        kind: of their constants.
    """
    expected, kept_rows = needed_weights(model), dict(rows_kept(model, heads, kind))
    for names, what in (
        (expected.keys() - weights, "missing"),
        (weights.keys() - expected, "unknown"),
    ):
        if names:
            raise ArtifactError(
                f"{len(names)} weights are {what} ({min(names)}, …): export the encoder again"
            )
    full = {}
    for name, like in expected.items():
        rows = kept_rows.get(name)
        shape = like.shape if rows is None else (int(rows.sum()), *like.shape[1:])
        if weights[name].shape != torch.Size(shape):
            raise ArtifactError(
                f"weight {name} has the shape {list(weights[name].shape)}, expected {list(shape)} "
                "for the constant heads in papa.json: export the encoder again"
            )
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
