"""Where a state's content comes from, through all layers below: by rollout, and by maximum flow."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from papa.descriptions.seen import Means, Seen

PART = "input-dependent part"
"""Of what A has above C: max(A - C, 0), beside the residual connection."""
UNITS = 1_000_000
"""Of a flow of 1: the algorithm counts in whole numbers."""


class Rollout(Means):
    """A row for each layer (Abnar & Zuidema, 2020), means over tokens of what a state holds after
    it: ``own`` is the share that comes from the token itself, ``from_separators`` that from
    separators, ``as_input_dependent`` how much of the shares is as with the input-dependent
    attention (1 - their total variation).
    """

    def reach(self, steps: Float[Tensor, "layers n n"]) -> Float[Tensor, "measured rows n"]:
        """The shares of input tokens in the states of tokens 0 to ``rows`` - 1."""
        return torch.stack([*accumulate(steps, lambda below, step: step @ below)])

    def see(self, seen: Seen) -> None:
        parts: dict[str, Tensor] = {seen.of: seen.attention}
        if seen.of == "constant":
            parts[PART] = (self.attention - seen.attention).clamp_min(0)
        for of, attention in parts.items():
            shares = self.reach(step_by_step(attention))
            if of == "input-dependent":
                self.attention: Tensor = attention
                self.reference = shares
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


class Flow(Rollout):
    """``Rollout`` of the first token after the last layer (Abnar & Zuidema, 2020): shares are those
    of the maximum flows from it to each input token. Each pair of tokens is a flow of its own.
    """

    def reach(self, steps: Float[Tensor, "layers n n"]) -> Float[Tensor, "1 1 n"]:
        self.last_layer = len(steps) - 1
        flows = flows_from(steps.numpy(), 0)
        return torch.from_numpy(flows / flows.sum())[None, None]

    def frame(self) -> pd.DataFrame:
        return super().frame().assign(layer=self.last_layer).astype({"layer": "Int64"})


def flows_from(steps: Float[np.ndarray, "layers n n"], token: int) -> Float[np.ndarray, " n"]:
    """The maximum flow from a token's state after the last layer to each input token; a step has
    the capacities from states after a layer to those before it.
    """
    layers, n, _ = steps.shape
    layer, above, below = np.indices(steps.shape)
    edges = ((layer + 1) * n + above).ravel(), (layer * n + below).ravel()
    capacities, nodes = np.rint(steps * UNITS).astype(np.int32), (layers + 1) * n
    graph = csr_array((capacities.ravel(), edges), shape=(nodes, nodes))
    found = [maximum_flow(graph, layers * n + token, sink).flow_value for sink in range(n)]
    return np.array(found) / UNITS
