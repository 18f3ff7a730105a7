"""What a plan says of studies whose encoders and corpora are not at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.build import build_graph
from flows.costs import expected_rates
from flows.graph import longest_chain, plan_study
from flows.inputs import check_inputs
from papa.errors import CheckError
from papa.spec.file import load_study
from tasks.store import Store
from tests.flows.conftest import papa

WHOLE = Path(__file__).resolve().parents[2] / "studies" / "whole.yaml"


@pytest.mark.server
def test_the_whole_paper_is_planned_without_a_network(tmp_path: Path) -> None:
    """6 encoders × 6 tasks: 36 corpora, averages and rankings, 5 fractions each."""
    finished = papa("plan", str(WHOLE), "--store", str(tmp_path), "--gpus", "16", "--tflops", "100")
    assert finished.code == 0, finished.err
    assert re.search(r"average\s+│\s+36\b", finished.out)
    assert re.search(r"probe\s+│\s+180\b", finished.out)
    assert "on 16 GPUs" in finished.out
    assert "a GPU at 100 TFLOP/s, as stated" in finished.out
    assert not list(tmp_path.iterdir())


def test_more_gpus_do_not_shorten_the_longest_chain(tmp_path: Path) -> None:
    study = load_study(WHOLE, ())
    inputs = check_inputs(study, shapes_suffice=True)
    graph = build_graph(inputs.study, inputs, "sqlite://")
    steps = plan_study(graph, Store(tmp_path), expected_rates(1e14))
    total = sum(step.seconds for step in steps)
    chains = [longest_chain(graph, steps, gpus) for gpus in (1, 16, 10_000)]
    assert chains[0] > chains[1] > chains[2] > 0
    assert chains[0] < total
    # One ranking and one cell of the largest encoder are left, however many GPUs there are.
    longest = max(step.seconds for step in steps if step.stage == "rank")
    assert chains[2] > longest


def test_an_encoder_that_nobody_knows_is_not_planned() -> None:
    study = load_study(WHOLE, ["encoders=[nobody/nothing-at-all]"])
    with pytest.raises(CheckError, match="nobody/nothing-at-all"):
        check_inputs(study, shapes_suffice=True)


def test_a_run_does_not_take_a_shape_for_an_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CheckError, match="bert-base-uncased"):
        check_inputs(load_study(WHOLE, ()))
