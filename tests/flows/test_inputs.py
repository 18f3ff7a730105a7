"""What is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flows.inputs import check_device, check_inputs
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
def test_half_precision_needs_a_gpu(device: str) -> None:
    if device == "auto" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU, which 'auto' takes")
    with pytest.raises(SpecError, match="bfloat16 needs a GPU and encoders run on the CPU here"):
        check_device(study("bfloat16", device), cluster=None)
    check_device(study("float32", device), cluster=None)
    check_device(study("bfloat16", device), cluster="a cluster's workers know")
    check_device(study("bfloat16", "cuda"), cluster=None)


def test_precision_goes_with_the_encoder() -> None:
    (encoder,) = check_inputs(study("bfloat16", "cuda")).encoders
    assert encoder.precision == "bfloat16"
