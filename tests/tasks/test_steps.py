"""From a study to its steps: which cells share one, and which have one per seed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from papa.ranking.head_scores import TrainedLambda
from papa.ranking.orders import head_order
from papa.spec.orders import Head
from papa.storage.artifacts import published
from papa.tasks.cell import ConstantHeads
from papa.tasks.head_scores import LAMBDA
from papa.tasks.step import Step
from tests.finished import cells_of
from tests.storage.artifacts import reference
from tests.tasks.steps import steps_of


def heads(steps: Sequence[Step]) -> list[tuple[Head, ...]]:
    return [step["heads"].select({}) for step in steps]


def test_random_orders_are_drawn_for_each_seed() -> None:
    orders = ["random", "first_to_last"]
    keep = [1, 0.5, 0.25, 0]
    steps = steps_of(orders=orders, probe_seeds=[0, 1, 2], ranking_seeds=[7, 8], keep=keep)
    cells = {(cell.order, cell.fraction): probes for cell, probes in cells_of(steps).items()}
    for fraction, count in ((0.5, 36), (0.25, 54)):
        drawn = cells["random", fraction]
        assert [step["seeds"] for step in drawn] == [(0,), (1,), (2,)]
        assert {len(chosen) for chosen in heads(drawn)} == {count}
        assert len(set(map(frozenset, heads(drawn)))) == 3
    # A study's random orders are drawn from the first ranking seed and each seed of the study.
    by_seed = [head_order("random", None, 6, 12, (7, seed))[:36] for seed in range(3)]
    assert heads(cells["random", 0.5]) == [tuple(sorted(order)) for order in by_seed]
    drawn = (heads(cells["random", fraction]) for fraction in (0.5, 0.25))
    for half, quarter in zip(*drawn, strict=True):
        assert set(half) < set(quarter), "one order a seed, at every fraction"
    for order, fraction in (("first_to_last", 0.5), ("random", 1), ("random", 0)):
        shared = cells[order, fraction]
        assert [step["seeds"] for step in shared] == [(0,), (1,), (2,)]
        assert len(set(heads(shared))) == 1
        # With all or no head constant the order does not matter.
        assert fraction == 0.5 or cells["first_to_last", fraction] == shared


@pytest.mark.parametrize(
    ("ranking", "seeds", "controls"),
    [
        ({"rows": 12}, 5, 5),
        ({"rows": 12, "control": False}, 5, 0),
        ({"rows": 12}, 4, 0),
        ({}, 5, 0),
    ],
)
def test_lambda_has_its_controls(ranking: dict[str, object], seeds: int, controls: int) -> None:
    tasks = [{"name": "reviews", "train_rows": 64}]
    steps = steps_of(ranking=ranking, ranking_seeds=list(range(seeds)), tasks=tasks)
    ranks = [step for step in steps.steps if step.stage.name == "train_lambda"]
    assert sum(step["shuffled"] for step in ranks) == controls
    assert len({step.key for step in ranks}) == len(ranks)
    (pair,) = steps.pairs
    assert {*pair.controls.values()} <= {*steps.steps[-1].inputs}


@pytest.mark.parametrize(
    ("task", "label_free"), [({}, False), ({"head": "native", "metric": "cosine"}, True)]
)
def test_lambda_by_a_models_own_answers_reads_no_labels(
    task: dict[str, object], label_free: bool
) -> None:
    steps = steps_of(tasks=[{"name": "reviews", **task}])
    (pair,) = steps.pairs
    scores = np.random.default_rng(0).random((2, 6, 12))
    trained = TrainedLambda(dict(enumerate(scores)))
    agreement = pair.lambda_agreement(trained, steps.steps[-1]["study"])
    assert agreement["label_free"] == label_free


def test_constants_that_no_head_takes_are_none() -> None:
    """Kinds of constants, trained ones too, share the step in which no head is constant."""
    steps = steps_of(substitutes=["average", "identity", "trained"], keep=[1, 0])
    originals = {probes for cell, probes in cells_of(steps).items() if cell.fraction == 1}
    assert len(originals) == 1
    (original,) = originals
    assert [step["heads"] for step in original] == [ConstantHeads((6, 12))] * len(original)
    assert not any(step["trained"] for step in original)
    assert len({probes for cell, probes in cells_of(steps).items() if cell.fraction == 0}) == 3


def test_matrices_made_of_the_average_have_no_step_of_their_own() -> None:
    derived = ["average", "relative", {"kind": "low_rank", "rank": 3, "largest": 5}]
    derived.append({"kind": "local", "window": 3})
    pipeline = steps_of(substitutes=derived, orders=["first_to_last"])
    constants = pipeline.pairs[0].substitutes
    sources = {constant.source.stage.name for constant in constants.values() if constant.source}
    assert sources == {"average"}
    assert constants["low_rank:3:5"].parameters == {"rank": 3, "largest": 5}
    assert constants["local:3"].source is None
    assert [step.stage.name for step in pipeline.steps].count("average") == 1


def test_heads_become_constant_by_the_mean_over_seeds(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    lambdas = numbers.random((3, 6, 12), np.float32)
    steps = steps_of(orders=["lambda"], keep=[0.5], ranking_seeds=[0, 1, 2])
    ((step, *_),) = cells_of(steps).values()
    score_steps = step["heads"].score_steps
    names = [scored.name.rpartition(" · ")[2] for scored in score_steps.values()]
    assert names == ["seed 0", "seed 1", "seed 2"]
    artifacts = {}
    for seed, scored in score_steps.items():
        artifact_path = tmp_path / f"rank-{seed}"
        with published(artifact_path, {}) as folder:
            save_file({"lambda": lambdas[seed]}, folder / LAMBDA)
        artifacts[scored] = reference(artifact_path)
    chosen = step["heads"].select(artifacts)
    mean = lambdas.astype(np.float64).mean(axis=0)
    assert chosen == tuple(sorted(head_order("lambda", mean, 6, 12)[:36]))
    assert all(set(chosen) != set(head_order("lambda", values, 6, 12)[:36]) for values in lambdas)
