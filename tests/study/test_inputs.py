"""What is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from papa.encoders.reference import EMBEDDED
from papa.spec import EncoderSpec, StudySpec
from papa.spec.file import resolve_study
from papa.study.inputs import resolve_inputs
from tests.encoders.lower import lower_layers


def study(precision: str, device: str) -> StudySpec:
    document = {
        "name": "s",
        "encoders": [EMBEDDED],
        "tasks": ["reviews"],
        "precision": precision,
        "execution": {"device": device},
    }
    return resolve_study(document, folder=Path(), origin="test")


@pytest.mark.parametrize(("has", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_what_auto_takes_is_what_study_and_encoder_say(
    has: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So keys, metadata, the stored specification and the report name a precision that computed."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has})
    found = resolve_inputs(study("auto", "cpu")).inputs()
    assert (found.study.precision, found.encoders[0].precision) == (expected, expected)


def test_auto_takes_one_precision_for_all_encoders_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    other = EncoderSpec(name=lower_layers(2, tmp_path / "other").folder)
    both = study("auto", "cpu")
    found = resolve_inputs(both.model_copy(update={"encoders": (*both.encoders, other)})).inputs()
    assert found.study.precision == "float32"
    assert [encoder.precision for encoder in found.encoders] == ["float32", "float32"]
