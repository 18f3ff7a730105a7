"""A kind of constants is one entry of a table: papa/spec/study.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from papa.errors import SpecError
from papa.heads.constants import control
from papa.heads.replacement import replaced
from papa.spec.study import CONTROLS
from tests.finished import cells_of
from tests.heads.cases import Case
from tests.study.test_steps import steps_of


def test_an_entry_of_the_controls_is_a_kind_of_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform attention: every token takes the mean of all real tokens."""
    known = "'average', 'identity', 'toeplitz', .*, 'relative', .* or 'trained', found 'uniform'"
    with pytest.raises(SpecError, match=f"'constants.0.kind': Input should be {known}"):
        steps_of(constants=["uniform"])

    monkeypatch.setitem(CONTROLS, "uniform", f"{__name__}:uniform")
    steps = steps_of(constants=["uniform"])
    assert {cell.constants for cell in cells_of(steps)} == {"uniform"}
    kind = steps.parts[0].constants["uniform"].kind

    case = Case("bert")
    inputs, everything = case.inputs(1), [*np.ndindex(case.encoder.layers, case.encoder.heads)]
    constants = control(kind, case.encoder.layers, case.encoder.heads, 32)
    seen: list[torch.Tensor] = []
    output = case.encoder.model.encoder.layer[0].attention.output
    value = case.encoder.model.encoder.layer[0].attention.self.value
    value.register_forward_hook(lambda *given: seen.append(given[2][0]))
    output.register_forward_hook(lambda module, given, _: seen.append(given[0][0]))
    with torch.no_grad(), replaced(case.encoder, constants, everything):
        case.encoder.token_states(batch := inputs.compact())
    for number in range(len(batch.rows)):
        own = batch.inputs_of_tokens == number
        expected = seen[0][own].mean(0).expand(int(own.sum()), -1)
        torch.testing.assert_close(seen[1][own], expected, atol=1e-6, rtol=1e-4)


def uniform(slots: int) -> Any:
    return np.ones((slots, slots))
