"""The optimiser of probes, θ and trained matrices, set as the authors' Trainer sets it (docs/fidelity.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from papa.spec import ProbeSpec

_BETAS = (0.9, 0.999)
_NORM_EPSILON = 1e-6
"""Added to a norm before it divides, as ``torch.nn.utils.clip_grad_norm_`` does."""


def adamw(parameters: Iterable[nn.Parameter], spec: ProbeSpec, rate: float) -> torch.optim.AdamW:
    """AdamW at a constant rate, with ε where transformers 4, the authors' library, has it.

    PyTorch divides by √(v / (1 - β₂ᵗ)) + ε, transformers 4 by (√v + ε) / √(1 - β₂ᵗ): the same with an ε that shrinks
    from step to step.

    Args:
        parameters: what is trained.
        spec: weight decay and ε.
        rate: learning rate.
    """
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=_BETAS, weight_decay=spec.weight_decay, fused=True)
    steps = count(1)

    def set_epsilon(*_: Any) -> None:
        epsilon = spec.adam_epsilon / math.sqrt(1 - _BETAS[1] ** next(steps))
        for group in optimizer.param_groups:
            group["eps"] = epsilon

    optimizer.register_step_pre_hook(set_epsilon)
    return optimizer


def clip_gradients(gradients: Sequence[Float[Tensor, "seeds ..."]], limit: float) -> Float[Tensor, " seeds"]:
    """Scale the gradients of each seed, in place, so that their common norm is at most ``limit``.

    Args:
        gradients: of all that is trained; the first axis counts seeds, which are clipped one by one.
        limit: 0 scales nothing.

    Returns:
        Each seed's norm before it was clipped.
    """
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    scales = (limit / (norms + _NORM_EPSILON)).clamp(max=1)
    # A GPU would have to be waited for to learn whether there is anything to scale.
    if limit and (scales.device.type != "cpu" or bool((scales < 1).any())):
        for gradient in gradients:
            gradient.mul_(scales.view(-1, *[1] * (gradient.ndim - 1)))
    return norms
