"""Orders by scores of heads: from a study's names to its steps, its cells and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

from flows.cli import app
from papa.spec import ExecutionSpec
from papa.spec.document import write_yaml
from papa.spec.file import load_study
from papa.storage.store import Store
from papa.study.inputs import check_inputs
from papa.study.results import found_orders
from papa.study.run import run_here
from papa.study.stages.rank import read_head_scores
from papa.study.step import Step
from papa.study.steps import StudySteps, study_steps
from tests.finished import finish_study
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


def test_what_reads_labels_is_by_seed_and_follows_the_probe() -> None:
    probe = {**SMALL["tasks"][0]["probe"], "epochs": 2}
    trained = [{**SMALL["tasks"][0], "probe": probe}]
    first, second = scorings(steps_of(orders=["gradient"], ranking={"seeds": [0, 1]}))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first != second
    assert first not in scorings(steps_of(orders=["gradient"], tasks=trained))
    assert scorings(steps_of()) == scorings(steps_of(tasks=trained)), "text alone is read"


def test_methods_that_read_a_frozen_probe_share_it() -> None:
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
    file, store = tmp_path / "study.yaml", tmp_path / "store"
    orders = {"orders": [*ORDERS, "gradient"], "name": "s"}
    file.write_text(write_yaml({**TINY, "encoders": [shallow], **orders}))
    finish_study(str(file), store)
    steps, place = study_steps(check_inputs(load_study(file))), Store(store)
    found = {
        method: read_head_scores(method, {0: step.reference(place)})
        for step in scorings(steps)
        for method in step["methods"]
    }
    values = {method: scores.mean for method, scores in found.items()}
    for cell, (probe,) in steps.cells.items():
        if cell.fraction == 0.5:
            ascending = values[cell.order.removeprefix("reversed:")].ravel().argsort(kind="stable")
            chosen = ascending[::-1][:12] if "reversed" in cell.order else ascending[:12]
            assert set(probe["heads"].chosen(probe.found(place))) == {
                divmod(int(at), 12) for at in chosen
            }
    artifacts = steps.steps[-1].found(place)
    assert "rank" not in {step.stage for step in steps.steps}
    report = (store / "studies" / "s" / "report.html").read_text()
    assert "distance to constant ascending (label-free)" in report
    assert "confidence ascending (label-free), reversed" in report
    assert "gradient ascending (label-free)" not in report
    ((_, orders),) = found_orders(steps.parts, artifacts).items()
    costs = {order: one.evaluations for order, one in orders.items()}
    assert costs == {"distance": 1, "reversed:confidence": None, "variance": None, "gradient": 2}
    assert {order for order, one in orders.items() if one.seconds} == {"distance", "gradient"}
    told = CliRunner().invoke(app, ["heads", "s", "--store", str(store), "--tsv"])
    assert told.exit_code == 1, "it prints those of one method"
    of_heads = pandas.read_parquet(store / "studies" / "s" / "heads.parquet")
    for method, own in of_heads.groupby("method"):
        assert np.array_equal(own["score"], values[method].ravel())
    told = CliRunner().invoke(app, ["heads", "s", "--store", str(store), "--json"])
    for scores in json.loads(told.output)["scores"]:
        ends = found[scores["method"]].interval
        np.testing.assert_array_equal(scores["mean"], values[scores["method"]])
        np.testing.assert_array_equal([scores["low"], scores["high"]], ends)
        assert (ends[1] > ends[0]).all(), "one seed, and an error over inputs"
    assert len(json.loads(told.output)["scores"]) == 4
