"""Spanning trees and flows against networkx; rollout by hand."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

from papa.descriptions.relations import arborescence
from papa.descriptions.rollout import PART, Rollout, flows_from, step_by_step
from tests.descriptions.cases import seen, values


@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("seed", range(6))
def test_arborescences_are_as_heavy_as_those_of_networkx(n: int, seed: int) -> None:
    weights = np.log(np.random.default_rng(seed).random((n, n)))
    # Ties and cycles: as attention often has them.
    weights[:, : n // 2] = weights[:, : n // 2].round(0)
    root = seed % n
    parents = arborescence(weights, root)
    assert parents[root] == -1
    children = [child for child in range(n) if child != root]
    graph = nx.DiGraph()
    edges = [(parent, child) for parent, child in product(range(n), children) if parent != child]
    graph.add_weighted_edges_from((*edge, weights[edge]) for edge in edges)
    best = nx.maximum_spanning_arborescence(graph, preserve_attrs=True)
    found = nx.DiGraph([(int(parents[child]), child) for child in children])
    assert nx.is_arborescence(found)
    assert set(found) == set(range(n))
    weight = sum(weights[parents[child], child] for child in children)
    assert weight == pytest.approx(best.size(weight="weight"))


def steps(layers: int = 3, n: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return step_by_step(torch.rand(layers, 2, n, n, generator=generator).pow(6))


@pytest.mark.parametrize("token", [0, 2])
def test_flows_are_those_of_networkx(token: int) -> None:
    matrices = steps().numpy()
    graph = nx.DiGraph()
    for (layer, i, j), capacity in np.ndenumerate(matrices):
        graph.add_edge((layer + 1, i), (layer, j), capacity=float(capacity))
    top = (len(matrices), token)
    expected = [nx.maximum_flow_value(graph, top, (0, sink)) for sink in range(4)]
    np.testing.assert_allclose(flows_from(matrices, token), expected, atol=1e-4)
    changed = matrices.copy()
    changed[1] = np.eye(4)
    assert not np.allclose(flows_from(changed, token), expected, atol=1e-2), "negative control"


def test_rollout_multiplies_from_below() -> None:
    matrices = steps()
    found = Rollout().reach(matrices)
    torch.testing.assert_close(found[-1], matrices[2] @ matrices[1] @ matrices[0])
    assert not torch.allclose(found[-1], matrices[0] @ matrices[1] @ matrices[2]), "control"
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(3, 4, dtype=torch.double))
    # One head that looks at the last token alone: half of each state, by the residual.
    asleep = torch.zeros(1, 1, 2, 2)
    asleep[..., 1] = 1
    assert step_by_step(asleep)[0].tolist() == [[0.5, 0.5], [0, 1]]


def test_rollout_says_what_of_it_is_constant() -> None:
    generator = torch.Generator().manual_seed(1)
    own = torch.rand(2, 3, 4, 4, generator=generator).softmax(dim=-1)
    rollout, same = Rollout(), Rollout()
    constant = torch.full_like(own, 0.25)
    for of, attention in [("input-dependent", own), ("constant", constant), ("replaced", constant)]:
        rollout.see(seen(of, attention))
    frame = rollout.frame()
    assert values(frame, "as_input_dependent").tolist() == pytest.approx([1, 1])
    assert (values(frame, "as_input_dependent", "constant") < 0.999).all()
    for of in ("input-dependent", "constant"):
        same.see(seen(of, own))
    whole = same.frame()
    assert values(whole, "as_input_dependent", "constant").tolist() == pytest.approx([1, 1])
    # Nothing is above the constant, so that each state is its own token's.
    assert values(whole, "own", PART).tolist() == pytest.approx([1, 1])
