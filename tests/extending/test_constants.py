"""A kind of constants is one entry of a table: papa/spec/constants.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from papa.attention.constants import control
from papa.attention.replacement import replaced
from papa.errors import SpecError
from papa.spec.constants import CONTROLS
from tests.attention.cases import HALF, Case, distance
from tests.plain import plainly
from tests.study.test_steps import steps_of


def test_an_entry_of_the_controls_is_a_kind_of_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform attention: every token takes the mean of all real tokens."""
    known = "'average', 'identity', 'toeplitz', .*, 'relative', .* or 'trained', found 'uniform'"
    with pytest.raises(SpecError, match=f"'constants.0.kind': Input should be {known}"):
        steps_of(constants=["uniform"])

    monkeypatch.setitem(CONTROLS, "uniform", f"{__name__}:uniform")
    steps = steps_of(constants=["uniform"])
    assert {cell.constants for cell in steps.cells} == {"uniform"}
    kind = steps.parts[0].constants["uniform"].kind

    case = Case("bert")
    inputs = case.inputs(1)
    constants = control(kind, case.encoder.layers, case.encoder.heads, 32)
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


def uniform(slots: int) -> Any:
    return np.ones((slots, slots))
