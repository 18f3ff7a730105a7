"""The shares of input tokens in a state, through all layers below: by rollout and maximum flow."""

from itertools import accumulate

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from papa.descriptions.observation import Means, Observation

INPUT_DEPENDENT_PART = "input-dependent part"
"""The name of max(A - C, 0), by which A exceeds C, beside the residual connection."""
UNITS = 1_000_000
"""How many units a flow of 1 has: the algorithm counts in whole numbers."""


class Rollout(Means):
    """A row for each layer (Abnar & Zuidema, 2020), means over tokens of a state's content after
    it: ``own`` is the share that comes from the token itself, ``from_separators`` that from
    separators, ``as_input_dependent`` how much of the shares is as with the input-dependent
    attention (1 - their total variation).
    """

    def token_shares(self, steps: Float[Tensor, "layers n n"]) -> Float[Tensor, "measured rows n"]:
        """Return the shares of input tokens in the states of tokens 0 to ``rows`` - 1."""
        return torch.stack([*accumulate(steps, lambda below, step: step @ below)])

    def observe(self, text: Observation) -> None:
        attentions: dict[str, Tensor] = {text.source: text.attention}
        if text.source == "constant":
            exceeding = (self.input_dependent - text.attention).clamp_min(0)
            attentions[INPUT_DEPENDENT_PART] = exceeding
        for source, attention in attentions.items():
            shares = self.token_shares(step_matrices(attention))
            if source == "input-dependent":
                # Observed first of every text; the others are compared with it.
                self.input_dependent: Tensor = attention
                self.reference = shares
            sums = {
                "own": shares.diagonal(dim1=-2, dim2=-1).sum(dim=-1),
                "from_separators": shares[..., text.separators].sum(dim=(-1, -2)),
                "as_input_dependent": torch.minimum(shares, self.reference).sum(dim=(-1, -2)),
            }
            self.add(source, shares.shape[1], sums)


def step_matrices(attention: Float[Tensor, "layers heads n n"]) -> Float[Tensor, "layers n n"]:
    """Return the mean over heads with the residual connection, rows normalised."""
    with_residual = attention.mean(dim=1, dtype=torch.double) + torch.eye(attention.shape[-1])
    return with_residual / with_residual.sum(dim=-1, keepdim=True)


class Flow(Rollout):
    """``Rollout`` of the first token after the last layer (Abnar & Zuidema, 2020): shares are those
    of the maximum flows from it to each input token. Each pair of tokens is a flow of its own.
    """

    def token_shares(self, steps: Float[Tensor, "layers n n"]) -> Float[Tensor, "1 1 n"]:
        self.last_layer = len(steps) - 1
        flows = flows_from(steps.numpy(), 0)
        return torch.from_numpy(flows / flows.sum())[None, None]

    def frame(self) -> pd.DataFrame:
        return super().frame().assign(layer=self.last_layer).astype({"layer": "Int64"})


def flows_from(steps: Float[np.ndarray, "layers n n"], token: int) -> Float[np.ndarray, " n"]:
    """Return the maximum flow from a token's state after the last layer to each input token; steps
    are the capacities from states after a layer to those before it.
    """
    layers, n, _ = steps.shape
    # Node layer · n + token is a token's state before that layer.
    layer, above, below = np.indices(steps.shape)
    edges = (((layer + 1) * n + above).ravel(), (layer * n + below).ravel())
    capacities = np.rint(steps * UNITS).astype(np.int32)
    nodes = (layers + 1) * n
    graph = csr_array((capacities.ravel(), edges), shape=(nodes, nodes))
    source = layers * n + token
    flows = [maximum_flow(graph, source, sink).flow_value for sink in range(n)]
    return np.array(flows) / UNITS
