"""Where a state's content can come from at most, through all layers below, by maximum flow."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from papa.descriptions.rollout import Rollout

UNITS = 1_000_000
"""Of a flow of 1: the algorithm counts in whole numbers."""


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
    """The maximum flow from a token's state after the last layer to each input token, where a step
    has the capacity from each state after a layer to those before it.
    """
    layers, n, _ = steps.shape
    layer, above, below = np.indices(steps.shape)
    edges = ((layer + 1) * n + above).ravel(), (layer * n + below).ravel()
    capacities, nodes = np.rint(steps * UNITS).astype(np.int32), (layers + 1) * n
    graph = csr_array((capacities.ravel(), edges), shape=(nodes, nodes))
    found = [maximum_flow(graph, layers * n + token, sink).flow_value for sink in range(n)]
    return np.array(found) / UNITS
