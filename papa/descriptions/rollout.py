"""Where a state's content comes from, through all layers below, by rollout."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from papa.descriptions.means import Means
from papa.descriptions.seen import Seen

PART = "input-dependent part"
"""Of what A has above C: max(A - C, 0), beside the residual connection."""


class Rollout(Means):
    """A row for each layer (Abnar & Zuidema, 2020), means over tokens of what a state holds after
    it: ``own`` is the share that comes from the token itself, ``from_separators`` that from
    separators, ``as_input_dependent`` how much of the shares is as with the input-dependent
    attention (1 - their total variation).
    """

    def reach(self, steps: Float[Tensor, "layers n n"]) -> Float[Tensor, "measured rows n"]:
        """The shares of input tokens in the states of tokens 0 to ``rows`` - 1."""
        shares = [steps[0]]
        for step in steps[1:]:
            shares.append(step @ shares[-1])
        return torch.stack(shares)

    def see(self, seen: Seen) -> None:
        if seen.of == "input-dependent":
            self.attention = seen.attention
            self.reference = self.reach(step_by_step(seen.attention))
        parts: dict[str, Tensor] = {seen.of: seen.attention}
        if seen.of == "constant":
            parts[PART] = (self.attention - seen.attention).clamp_min(0)
        for of, attention in parts.items():
            shares = self.reach(step_by_step(attention))
            sums = {
                "own": shares.diagonal(dim1=-2, dim2=-1).sum(dim=-1),
                "from_separators": shares[..., seen.separators].sum(dim=(-1, -2)),
                "as_input_dependent": torch.minimum(shares, self.reference).sum(dim=(-1, -2)),
            }
            self.add(of, shares.shape[1], sums)


def step_by_step(attention: Float[Tensor, "layers heads n n"]) -> Float[Tensor, "layers n n"]:
    """The mean over heads with the residual connection, rows normalised."""
    with_residual = attention.mean(dim=1, dtype=torch.double) + torch.eye(attention.shape[-1])
    return with_residual / with_residual.sum(dim=-1, keepdim=True)
