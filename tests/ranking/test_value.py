"""What heads are worth together, on an encoder in which one head alone carries the label; passes
that begin above what is known.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.attention.replacement import replaced
from papa.probes.probes import Probe
from papa.ranking.scores.asked import frozen_probe
from papa.ranking.scores.sets import greedy_places, shapley_values
from papa.ranking.value import FrozenLosses, Loss, LossValue, resumed
from papa.spec import ExecutionSpec, RankingSpec
from papa.spec.orders import Head
from papa.study.costs import Size, Work
from tests.attention.cases import Case, random_constants
from tests.ranking.planted import Planted, asked_of, silenced


@pytest.fixture(scope="session")
def probe(one_head: Planted, tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return frozen_probe(asked_of(one_head, tmp_path_factory.mktemp("features")))


def losses_of(given: Planted, probe: Probe, every: int = 4, **options: Any) -> FrozenLosses:
    split = given.corpus.split("train")
    rows = np.arange(0, len(split), every)
    return FrozenLosses(given.encoder, given.constants, split, rows, probe, **options)


def value_of(given: Planted, probe: Probe) -> LossValue:
    return LossValue(losses_of(given, probe))


def test_a_planted_head_is_worth_what_all_are(one_head: Planted, probe: Probe) -> None:
    value = value_of(one_head, probe)
    everyone = frozenset(value.heads)
    whole, nothing = value(everyone), value(frozenset())
    assert whole > -0.01
    assert nothing < -0.5
    assert value({one_head.head}) == pytest.approx(whole, abs=1e-3)
    assert value(everyone - {one_head.head}) == pytest.approx(nothing, abs=1e-2)

    values, errors = shapley_values(value, value.heads, 40, seed=0)
    planted = value.heads.index(one_head.head)
    assert values[planted] == pytest.approx(whole - nothing, abs=1e-2)
    assert np.abs(np.delete(values, planted)).max() < 1e-2
    assert errors.max() < 1e-2
    assert greedy_places(value, value.heads, 20)[planted] == len(value.heads) - 1

    # Without what it puts out nothing is worth anything: the score is the head's.
    with silenced(one_head):
        without, _ = shapley_values(value_of(one_head, probe), value.heads, 40, seed=0)
    assert abs(without[planted]) < 1e-2


def test_passes_that_begin_above_what_is_known_change_nothing(
    one_head: Planted, probe: Probe
) -> None:
    losses, of_whole = losses_of(one_head, probe), losses_of(one_head, probe, resume=False)
    value, whole, batches = LossValue(losses), LossValue(of_whole), len(losses.sizes)
    drawn = np.random.default_rng(0)
    for _ in range(12):
        own = {head for head in value.heads if drawn.random() < 0.5}
        assert value(own) == whole(own)
    assert losses.layers < of_whole.layers == 2 * 12 * batches
    asked = losses.layers
    assert value({*value.heads}) == whole({*value.heads})
    last = value({*value.heads} - {(1, 0)})
    assert losses.layers - asked == 3 * batches, "the last layer alone differs"
    assert value({*value.heads} - {(1, 0)}) == last
    assert losses.layers - asked == 3 * batches, "the same heads again"


def test_values_are_the_same_whoever_computes_a_batch(one_head: Planted, probe: Probe) -> None:
    """Batches go to and fro between two workers, each of which holds what it saw last."""
    workers = [losses_of(one_head, probe, every=1) for _ in range(2)]
    alone, drawn = LossValue(losses_of(one_head, probe, every=1)), np.random.default_rng(0)
    assert len(workers[0].sizes) > 2

    def of_batches(own: Set[Head], numbers: Sequence[int], sizes: Sequence[int]) -> list[Loss]:
        return [workers[drawn.integers(2)].loss(own, number) for number in numbers]

    shared = LossValue(workers[0], of_batches)
    for _ in range(12):
        own = {head for head in shared.heads if drawn.random() < 0.5}
        assert shared(own) == alone(own)
    assert all(worker.layers for worker in workers)
    # What they hold is what counts: with states of other heads a value is another.
    (wrong, _), everyone = workers, {*shared.heads}
    wrong._held = {number: (everyone, held) for number, (_, held) in wrong._held.items()}
    assert shared(everyone - {(1, 0)}) != alone(everyone - {(1, 0)})


@pytest.mark.parametrize("one_head", [(1, 1)], indirect=True)
def test_a_plan_counts_the_layers_that_are_computed(one_head: Planted, probe: Probe) -> None:
    """What a larger budget adds: a share of a pass for each evaluation."""
    split, reference = one_head.corpus.split("train"), one_head.encoder.reference
    rows = len(np.arange(0, len(split), 4))
    size = Size(rows, 0, 10.0, 10.0)
    assert reference is not None
    planned, computed, budgets = [], [], (50, 150)
    for evaluations in budgets:
        ranking = RankingSpec(rows=rows, evaluations=evaluations)
        planned.append(Work(reference, size, one_head.task).scoring(ranking, "shapley"))
        losses = losses_of(one_head, probe)
        shapley_values(LossValue(losses), losses.heads, evaluations, seed=0, tolerance=0)
        computed.append(losses.layers / one_head.encoder.layers / len(losses.sizes))
    passes = (planned[1] - planned[0]) / Work(reference, size, one_head.task).averaging()
    assert passes == pytest.approx(computed[1] - computed[0], rel=0.15)
    assert passes < 0.8 * (budgets[1] - budgets[0]), "not whole passes"


def test_a_probe_is_the_cells_own_and_frozen(
    one_head: Planted, probe: Probe, tmp_path: Path
) -> None:
    """Streamed features give the same probe as stored ones."""
    streamed = frozen_probe(
        asked_of(one_head, tmp_path, execution=ExecutionSpec(features_budget_gb=0.0))
    )
    assert not [*tmp_path.iterdir()]
    assert not any(parameter.requires_grad for parameter in probe.parameters())
    for one, other in zip(probe.parameters(), streamed.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "variant",
    ["bert", "distilbert", "albert", "mpnet", "deberta", "deberta_v2_xlarge", "modernbert"],
)
@torch.inference_mode()
def test_layers_below_are_left_out(variant: str) -> None:
    """Whatever the family, layers that share their weights and a convolution beside the first
    among them.
    """
    case = Case(variant)
    encoder, constants = case.encoder, random_constants(case)
    batch = case.inputs(seed=1).compact()
    outputs: list[Any] = [None] * encoder.layers
    before = [vars(module).get("forward") for module in encoder.model.modules()]

    def states(heads: list[tuple[int, int]], first: int) -> list[torch.Tensor]:
        with replaced(encoder, constants, heads), resumed(encoder, first, outputs):
            return encoder.token_states(batch)

    def whole(heads: list[tuple[int, int]]) -> list[torch.Tensor]:
        with replaced(encoder, constants, heads):
            return encoder.token_states(batch)

    states([(1, 0)], 0)
    above = [(1, 0), (2, 1), (2, 3)]
    assert same(states(above, 2), whole(above))
    # A head below the first layer that computes is not seen: what is kept is what counts.
    assert same(states([(0, 1), *above], 2), whole(above))
    assert not same(whole([(0, 1), *above]), whole(above))
    assert [vars(module).get("forward") for module in encoder.model.modules()] == before


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))
