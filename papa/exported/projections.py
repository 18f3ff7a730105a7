"""Query and key maps of the input-dependent heads alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from papa.models.supported import Family


def keep_input_dependent(
    family: Family, module: Any, constant: list[list[int]], head_count: int
) -> None:
    """Keep queries and keys only of heads that are not constant, in each layer of one attention
    module, in place.

    Args:
        family: Of the model.
        module: An attention module, which several layers may share.
        constant: The constant heads of each of its layers.
        head_count: Number of heads of a layer.
    """
    all_heads = range(head_count)
    dependent = [head for head in all_heads if any(head not in heads for heads in constant)]
    module.constant_counts = [len(heads) for heads in constant]
    orders = [[*heads, *(head for head in all_heads if head not in heads)] for heads in constant]
    module.register_buffer("head_order", torch.tensor(orders))
    for name in family.projections:
        linear = getattr(module, name, None)
        if linear is None:
            continue
        rows = family.rows(linear, dependent, head_count)
        if not len(rows):
            # No head reads queries or keys: any states will do.
            setattr(module, name, nn.Identity())
        elif len(rows) < linear.out_features:
            # One map of queries, keys and values.
            gives_values = linear.out_features > linear.in_features
            if gives_values or len(constant) > 1:
                head_width = linear.in_features // head_count
                blocks = torch.zeros(linear.out_features // head_width, dtype=torch.long)
                blocks[rows[::head_width] // head_width] = torch.arange(len(rows) // head_width)
                # The map's own, so that a replica of it (DataParallel) has them on its device.
                linear.register_buffer("blocks", blocks)
                linear.register_forward_hook(partial(_states_by_head, head_width))
            for weight_name, whole in list(linear.named_parameters()):
                setattr(linear, weight_name, nn.Parameter(whole.detach()[rows]))
            linear.out_features = len(rows)


def _states_by_head(head_width: int, linear: Any, _: object, projected: Tensor) -> Tensor:
    """Return the output of a map, which has the rows of some heads, with states for every head;
    those of constant heads are not read.
    """
    by_block = projected.unflatten(-1, (-1, head_width)).index_select(-2, linear.blocks)
    return by_block.flatten(-2)
