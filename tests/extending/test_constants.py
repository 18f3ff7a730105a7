"""A kind of constant matrices is one entry of papa/spec/controls.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.errors import SpecError
from papa.spec.controls import CONTROLS
from papa.study.controls import Controls
from tests.attention.cases import HALF, Case, distance
from tests.plain import plainly
from tests.study.test_steps import steps_of


def test_an_entry_of_the_controls_is_a_kind_of_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform attention: every token takes the mean of all real tokens."""
    known = "use 'average', 'identity', 'toeplitz', .*, 'relative', .* or 'trained'"
    with pytest.raises(SpecError, match=f"'constants.0.kind' is 'uniform': {known}"):
        steps_of(constants=["uniform"])

    monkeypatch.setitem(CONTROLS, "uniform", lambda slots: np.ones((slots, slots)))
    steps = steps_of(constants=["uniform"])
    assert {cell.constants for cell in steps.cells} == {"uniform"}
    (step,) = [step for step in steps.steps if step.stage == "controls"]
    assert isinstance(step, Controls)

    case = Case("bert")
    inputs = case.inputs(1)
    constants = control(step.kind, case.encoder.layers, case.encoder.heads, step.slots)
    real = inputs.attention_mask.double()
    means = (real / real.sum(dim=1, keepdim=True))[:, None, None, :]

    def overwrite(layer: int):
        heads = [head for at, head in HALF if at == layer]
        chosen = torch.zeros(1, case.encoder.heads, 1, 1, dtype=torch.bool)
        chosen[:, heads] = True
        return lambda probabilities: means.where(chosen, probabilities)

    with torch.no_grad():
        own = case.padded(inputs)
        with plainly(case.modules(), overwrite):
            expected = case.padded(inputs)
        with replaced(case.encoder, constants, HALF):
            found = case.encoder.hidden_states(inputs.compact())
    assert distance(found, expected, inputs) < case.tolerance
    assert distance(found, own, inputs) > 0.05
