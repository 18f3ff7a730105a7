"""What a plan says of studies whose encoders and corpora are not at hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papa.errors import CheckError
from papa.spec.file import load_study
from papa.storage.artifacts import published
from papa.study.inputs import check_inputs
from papa.study.sizes import stage_seconds
from papa.study.store import Store
from tests.flows.conftest import said

WHOLE = Path(__file__).resolve().parents[2] / "studies" / "whole.yaml"


def test_the_whole_paper_is_planned_without_a_network(tmp_path: Path) -> None:
    """6 encoders × 6 tasks: 36 corpora, averages and rankings, 5 fractions each."""
    finished = said("plan", str(WHOLE), "--store", str(tmp_path))
    assert finished.code == 0, finished.err
    assert len(re.findall(r"^│ average ", finished.out, re.MULTILINE)) == 36
    assert len(re.findall(r"^│ probe ", finished.out, re.MULTILINE)) == 180
    assert "0 of 326 steps are cached; 326 would run." in " ".join(finished.out.split())
    assert not list(tmp_path.iterdir())


def test_a_stage_takes_what_its_finished_steps_took(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key, seconds in (("a", 10.0), ("b", 30.0)):
        with published(store.folder("average", key), {"stage": "average", "seconds": seconds}):
            pass
    assert stage_seconds(store, "average") == 20.0
    assert stage_seconds(store, "rank") is None


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
