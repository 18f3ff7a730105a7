"""A kind of constants is one entry of a table: papa/spec/constants.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from papa.attention.constants import control
from papa.attention.kinds import Averages
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import replaced
from papa.errors import SpecError
from papa.spec.constants import CONTROLS, DERIVED, OUTPUTS
from papa.spec.file import resolve_study
from papa.storage.store import Store
from papa.study.inputs import resolve_inputs
from papa.study.run import run_here
from papa.study.stages.constants import read_constants
from papa.study.step import with_needs
from papa.study.steps import study_steps
from tests.attention.cases import HALF, Case, distance
from tests.flows.conftest import SMALL
from tests.plain import plainly
from tests.study.test_steps import steps_of
from tests.study.told import Told


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


def sharpened(average: Averages) -> Any:
    return average.matrices**2


def number_output(encoder: Any, split: Any, *, batch_tokens: int, progress: Any) -> ConstantOutputs:
    """Each head puts out its number."""
    numbers = torch.arange(encoder.heads).float()[None, :, None, None]
    index = torch.zeros(split.slots + 1, split.slots, dtype=torch.int64)
    outputs = numbers.expand(encoder.layers, -1, 1, encoder.head_width)
    return ConstantOutputs(outputs, index, "number_output")


def test_what_is_made_of_text_is_an_entry_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrices from the average, and outputs."""
    monkeypatch.setitem(DERIVED, "sharpened", f"{__name__}:sharpened")
    monkeypatch.setitem(OUTPUTS, "number_output", f"{__name__}:number_output")
    document = {**SMALL, "constants": ["average", "sharpened", "number_output"]}
    study = resolve_study(document, folder=tmp_path, origin="test")
    steps, store = study_steps(resolve_inputs(study).inputs()), Store(tmp_path / "store")
    store.make()
    (part,) = steps.parts
    sources = [own.source for own in part.constants.values() if own.source]
    run_here(with_needs(sources), store, study.execution, Told())
    average, sharpened, found = (
        read_constants(own.kind, {}, own.source.reference(store), part.encoder, part.task)
        for own in (part.constants[kind] for kind in document["constants"])
        if own.source
    )
    torch.testing.assert_close(sharpened.matrices, average.matrices**2)
    assert not torch.equal(sharpened.matrices, average.matrices)
    assert found.kind == "number_output"
    assert found.outputs[..., 0, 0].tolist() == [[*range(12)]] * 6
