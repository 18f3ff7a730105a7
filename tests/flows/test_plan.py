"""What a plan says of studies whose encoders and corpora are not at hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tasks.track import tracked_steps
from typer.testing import CliRunner

from flows.cli import app
from flows.plan import PlannedStep, bound, planned_steps
from papa.errors import CheckError
from papa.spec.file import load_study
from papa.study.costs import SUBMITTING, expected_rates
from papa.study.inputs import check_inputs
from papa.study.store import Store
from tests.flows.conftest import said
from tests.study.test_keys import CONSTANTS as AVERAGE
from tests.study.test_store import CONSTANTS

WHOLE = Path(__file__).resolve().parents[2] / "studies" / "whole.yaml"


def test_the_whole_paper_is_planned_without_a_network(tmp_path: Path) -> None:
    """6 encoders × 6 tasks: 36 corpora, averages and rankings, 5 fractions each."""
    finished = said("plan", str(WHOLE), "--store", str(tmp_path), "--gpus", "16")
    assert finished.code == 0, finished.err
    assert re.search(r"average\s+│\s+36\b", finished.out)
    assert re.search(r"probe\s+│\s+180\b", finished.out)
    assert "on 16 GPUs" in finished.out
    assert torch.cuda.is_available() or "an A100 at 19.5 TFLOP/s" in finished.out
    nodes = said("plan", str(WHOLE), "--store", str(tmp_path), "--gpus", "8", "--nodes", "64")
    assert "on 512 GPUs of 64 nodes" in nodes.out
    assert "more would not help" in nodes.out
    workers = said("plan", str(WHOLE), "--store", str(tmp_path), "--workers", "4", "--nodes", "2")
    assert "on 8 workers of 2 nodes" in workers.out
    assert re.search(r"they would be busy for \d+% of the time", workers.out)
    assert not list(tmp_path.iterdir())


def test_a_plan_for_no_node_is_refused() -> None:
    finished = CliRunner().invoke(app, ["plan", str(WHOLE), "--nodes", "0"])
    assert finished.exit_code == 2
    assert "'--nodes': Input should be greater than or equal to 1" in finished.output


def test_more_gpus_do_not_shorten_the_longest_chain(tmp_path: Path) -> None:
    study = load_study(WHOLE, ())
    inputs = check_inputs(study, shapes_suffice=True)
    plan = planned_steps(
        tracked_steps(inputs, "sqlite://").steps, Store(tmp_path), expected_rates(1e14)
    )
    found = bound(plan, alone=("rank",))
    one, some, many, all_ = map(found.seconds, (1, 4, 64, 10_000))
    assert one > some > many == all_ > 0
    assert one == found.work == pytest.approx(sum(step.seconds for step in plan))
    # One ranking and one cell of the largest encoder are left, however many GPUs there are.
    longest = max(one.seconds for one in plan if one.step.stage == "rank")
    assert all_ == found.chain > longest


def test_a_bound_is_the_work_or_the_longest_chain_or_what_the_driver_does() -> None:
    """A text of 3 seconds, its average of 8 in four shards, and a step beside them."""
    average = replace(AVERAGE, parts=4)
    seconds = {average.corpus: 3.0, average: 8.0, CONSTANTS: 0.0}
    plan = [PlannedStep(step, cached=not own, seconds=own) for step, own in seconds.items()]
    found = bound(plan)
    assert (found.work, found.chain) == (11.0, 5.0)
    assert found.seconds(1) == 11.0
    assert found.seconds(2) == 5.5
    assert found.seconds(100) == 5.0
    assert bound(plan, alone=("average",)).chain == 11.0
    many = bound([PlannedStep(average.corpus, False, 0.0)] * 2000)
    assert many.seconds(100) == pytest.approx(2000 * SUBMITTING)


def test_an_encoder_that_nobody_knows_is_not_planned() -> None:
    study = load_study(WHOLE, ["encoders=[nobody/nothing-at-all]"])
    with pytest.raises(CheckError, match="nobody/nothing-at-all"):
        check_inputs(study, shapes_suffice=True)


def test_a_run_does_not_take_a_shape_for_an_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CheckError, match="bert-base-uncased"):
        check_inputs(load_study(WHOLE, ()))
