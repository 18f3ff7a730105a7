"""What is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flows.inputs import check_inputs, device_of
from papa.encoders.precision import check_precision
from papa.encoders.reference import EMBEDDED
from papa.errors import SpecError
from papa.spec import StudySpec
from papa.spec.file import resolve_study


def study(precision: str, device: str) -> StudySpec:
    document = {
        "name": "s",
        "encoders": [EMBEDDED],
        "tasks": ["reviews"],
        "precision": precision,
        "execution": {"device": device},
    }
    return resolve_study(document, folder=Path(), origin="test")


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_half_precision_needs_a_device_that_has_it(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "auto" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU, which 'auto' takes")
    taken = device_of(study("float16", device))
    with pytest.raises(SpecError, match="float16 needs a GPU and encoders run on the CPU here"):
        check_precision("float16", taken)
    with monkeypatch.context() as patched:
        patched.setattr(torch.cpu, "get_capabilities", dict)
        with pytest.raises(SpecError, match="bfloat16 needs a GPU, or a CPU with AMX"):
            check_precision("bfloat16", taken)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"bf16": True})
    check_precision("bfloat16", taken)
    check_precision("float32", taken)
    check_precision("float16", device_of(study("float16", "cuda")))


@pytest.mark.parametrize(("has", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_what_auto_takes_goes_with_the_encoder(has: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So keys and metadata name a precision that computed."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has})
    (encoder,) = check_inputs(study("auto", "cpu")).encoders
    assert encoder.precision == expected


def test_precision_goes_with_the_encoder() -> None:
    (encoder,) = check_inputs(study("bfloat16", "cuda")).encoders
    assert encoder.precision == "bfloat16"
