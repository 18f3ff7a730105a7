"""The linear maps of a frozen encoder: in bfloat16 on a CPU, where that is asked; queries and keys
for the heads alone that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from papa.encoders.dispatch import Dispatch


def hold_in_bfloat16(model: nn.Module) -> None:
    """Round the weights of the linear maps of a model's layers, which are in lists of modules, and
    have them take any floating dtype; products are summed in float32.

    Maps outside the layers keep float32: the few that widen embeddings, from which the residual
    stream starts.
    """
    stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    for linear in dict.fromkeys(one for stack in stacks for one in stack.modules()):
        if isinstance(linear, nn.Linear):
            linear.to(torch.bfloat16)
            linear.forward = partial(_cast, linear)  # type: ignore[method-assign]


def _cast(linear: nn.Linear, states: Tensor) -> Tensor:
    return F.linear(states.to(linear.weight.dtype), linear.weight, linear.bias)


def project_dependent_heads(
    module: nn.Module, names: Sequence[str], dispatch: Dispatch, head_width: int
) -> None:
    """Have a module's maps to queries and keys (or to values too, side by side) compute them for
    the heads alone that the rule of its layer asks for.
    """
    for name in names:
        linear = getattr(module, name, None)
        if linear is not None:
            linear.forward = partial(_project, linear, linear.forward, module, dispatch, head_width)


def _project(
    linear: nn.Linear,
    whole: Callable[[Tensor], Tensor],
    module: nn.Module,
    dispatch: Dispatch,
    head_width: int,
    states: Float[Tensor, "1 tokens width"],
) -> Float[Tensor, "1 tokens own_width"]:
    heads = dispatch.dependent_heads(module)
    if heads is None:
        return whole(states)
    fused = linear.out_features > dispatch.heads * head_width
    if not heads and not fused:
        # Nothing is asked for: a view stands in, so that the layer can still name its shapes.
        return states[..., :head_width]
    if (linear, heads) not in dispatch.kept_rows:
        rows = torch.arange(linear.out_features)
        if linear is getattr(module, "in_proj", None):  # DeBERTa's first version: head by head.
            rows = rows.unflatten(0, (dispatch.heads, -1, head_width)).transpose(0, 1)
        else:
            rows = rows.unflatten(0, (-1, dispatch.heads, head_width))
        rows = torch.cat([rows[:2, list(heads)].flatten(), rows[2:].flatten()])
        dispatch.kept_rows[linear, heads] = _kept(linear, rows.to(linear.weight.device))
    weight, bias, rows = dispatch.kept_rows[linear, heads]
    found = F.linear(states.to(weight.dtype), weight, bias)
    if not fused:
        return found
    # Queries and keys of other heads, which nobody reads, are 0.
    return found.new_zeros(*states.shape[:-1], linear.out_features).index_copy(-1, rows, found)


@torch.inference_mode(False)
@torch.no_grad()
def _kept(
    linear: nn.Linear, rows: Int[Tensor, " rows"]
) -> tuple[Tensor, Tensor | None, Int[Tensor, " rows"]]:
    """Some rows of a map, to be used with and without gradients."""
    bias = None if linear.bias is None else linear.bias[rows]
    return linear.weight[rows], bias, rows
