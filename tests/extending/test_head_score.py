"""A method that scores heads is a function and one entry of papa/ranking/orders.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from papa.ranking.orders import HEAD_SCORES, ScoringMethod
from papa.ranking.seeds import HeadScores
from papa.ranking.sets import Asked
from papa.reporting.wording import order_label
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.study.inputs import resolve_inputs
from papa.study.run import run_here
from papa.study.stages.rank import read_head_scores
from papa.study.step import with_needs
from papa.study.steps import study_steps
from tests.finished import Told
from tests.flows.conftest import SMALL


def score(asked: Asked) -> HeadScores:
    """How large a head's values are."""
    layers = asked.encoder.model.encoder.layer
    weights = [layer.attention.self.value.weight.view(asked.encoder.heads, -1) for layer in layers]
    return HeadScores(np.stack([one.norm(dim=1).numpy() for one in weights])[None])


def test_an_entry_of_the_methods_is_a_head_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = ScoringMethod("norm of values", f"{__name__}:score", label_free=True)
    monkeypatch.setitem(HEAD_SCORES, "values", method)
    document = {**SMALL, "orders": ["values", "reversed:values"], "fractions": [0.5]}
    study = resolve_study(document, folder=tmp_path, origin="test")
    steps, store = study_steps(resolve_inputs(study).inputs()), Store(tmp_path / "store")
    store.make()
    (scoring,) = (step for step in steps.steps if step.stage == "scores" and step["seed"] == 0)
    run_here(with_needs([scoring]), store, study.execution, Told())
    scores = read_head_scores("values", {0: scoring.reference(store)}).mean
    assert scores.shape == (6, 12)
    assert scores.std() > 0
    assert order_label("values") == "norm of values ascending (label-free)"
    assert order_label("reversed:values") == "norm of values ascending (label-free), reversed"
