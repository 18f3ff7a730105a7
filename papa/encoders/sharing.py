"""A model's modules copied, its weights shared: what is done to the copy stays there."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import Any

from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_CAPTURING = "_output_capturing_hooks_installed"
"""Where transformers notes that its hooks are in place; without them it puts in new ones."""


def sharing_weights(model: nn.Module) -> nn.Module:
    """Return a copy of the modules and configuration of ``model`` whose parameters lie in the same
    memory.

    Parameters are objects of their own, so that gradient flags and moves to a device are the copy's
    alone, while an optimiser's steps on the model are seen by both. Hooks are not copied: they
    expect inputs as the model gets them.
    """
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                # deepcopy takes what its memo names for copied already.
                memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for buffer in module._buffers.values():
            if buffer is not None:
                memo[id(buffer)] = buffer.detach()
        for hooks in _HOOKS:
            memo[id(getattr(module, hooks))] = OrderedDict()
    copied = deepcopy(model, memo)
    for module in copied.modules():
        vars(module).pop(_CAPTURING, None)
    return copied
