"""Orders by scores of heads: from a study's names to its steps, its cells and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papa.spec import ExecutionSpec
from papa.storage.store import Store
from papa.study.results import found_orders
from papa.study.run import run_here
from papa.study.stages.rank import read_head_scores
from papa.study.step import Step
from papa.study.steps import StudySteps
from tests.finished import score_study
from tests.flows.conftest import SMALL, TINY
from tests.study import test_steps
from tests.study.told import Told

pytestmark = pytest.mark.unchecked

ORDERS = ["distance", "reversed:confidence", "variance"]
"""Label-free all."""


def steps_of(**changes: Any) -> StudySteps:
    return test_steps.steps_of(**{"orders": ORDERS, "fractions": [1, 0.5], **changes})


def scorings(steps: StudySteps) -> list[Step]:
    return [step for step in steps.steps if step.stage == "scores"]


def test_streamed_methods_share_a_pass_that_draws_nothing() -> None:
    (step,) = scorings(steps_of())
    assert step["methods"] == ("confidence", "distance", "output_distance", "variance")
    assert scorings(steps_of(ranking={"seeds": [5]})) == [step]
    assert scorings(steps_of(orders=["variance"])) == [step]
    sampled = scorings(steps_of(ranking={"rows": 8, "seeds": [0, 1]}))
    assert len(sampled) == 2
    assert step not in sampled, "of a sample each seed has its own"
    assert len({one.name for one in sampled}) == 2


def test_what_reads_labels_is_by_seed_and_follows_a_probe_that_methods_share() -> None:
    task = SMALL["tasks"][0]
    trained = [{**task, "probe": {**task["probe"], "epochs": 2}}]
    first, second = scorings(steps_of(orders=["gradient"], ranking={"seeds": [0, 1]}))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first != second
    assert first not in scorings(steps_of(orders=["gradient"], tasks=trained))
    assert scorings(steps_of()) == scorings(steps_of(tasks=trained)), "text alone is read"
    orders = ["gradient", "shapley", "greedy", "effect", "gates", "distance"]
    steps = steps_of(orders=orders, ranking={"seeds": [0, 1], "evaluations": 400})
    frozen = [step for step in steps.steps if step.stage == "frozen_probe"]
    assert [step["seed"] for step in frozen] == [0, 1]
    for step in scorings(steps):
        reads = step["methods"][0] in orders[:4]
        assert step["probe"] == (frozen[step["seed"]] if reads else None), step.name
        assert not reads or steps.steps.index(step) > steps.steps.index(step["probe"])


def test_a_frozen_probe_comes_back_to_the_bit(shallow: str, tmp_path: Path) -> None:
    """So scores are those of a probe that is trained where they are computed."""
    steps = steps_of(encoders=[shallow], orders=["gradient"], ranking={"rows": 8, "seeds": [0]})
    (scoring,), store = scorings(steps), Store(tmp_path)
    store.make()
    alone = scoring.changed(probe=None)
    run_here([*scoring.needs, scoring, alone], store, ExecutionSpec(), Told())
    first, again = (
        read_head_scores("gradient", {0: step.reference(store)}).mean for step in (scoring, alone)
    )
    np.testing.assert_array_equal(first, again)
    assert first.std() > 0


@pytest.mark.server
def test_a_study_by_scores_of_heads(shallow: str, tmp_path: Path) -> None:
    document = {**TINY, "encoders": [shallow], "orders": [*ORDERS, "gradient"]}
    steps, _, _, found = score_study(document, Path(), tmp_path / "store")
    values = {
        method: read_head_scores(method, {0: found[step]}).mean
        for step in scorings(steps)
        for method in step["methods"]
    }
    for cell, (probe,) in steps.cells.items():
        if cell.fraction == 0.5:
            ascending = values[cell.order.removeprefix("reversed:")].ravel().argsort(kind="stable")
            chosen = ascending[::-1][:12] if "reversed" in cell.order else ascending[:12]
            expected = {divmod(int(at), 12) for at in chosen}
            assert set(probe["heads"].chosen(found)) == expected
    assert "rank" not in {step.stage for step in steps.steps}
    ((_, orders),) = found_orders(steps.parts, found).items()
    costs = {order: one.evaluations for order, one in orders.items()}
    assert costs == {"distance": 1, "reversed:confidence": None, "variance": None, "gradient": 2}
    assert {order for order, one in orders.items() if one.seconds} == {"distance", "gradient"}
