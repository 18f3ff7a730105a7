"""What is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from papa.encoders.reference import EMBEDDED
from papa.spec.file import resolve_study
from papa.study.inputs import resolve_inputs
from tests.encoders.lower import lower_layers


def test_what_auto_takes_is_what_study_and_all_encoders_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So keys, metadata, the stored specification and the report name a precision that computed."""
    other = lower_layers(2, tmp_path / "other").folder
    cases = [(True, [EMBEDDED], "bfloat16"), (False, [EMBEDDED], "float32")]
    for has, encoders, expected in [*cases, (True, [EMBEDDED, other], "float32")]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: {"amx_bf16": has})
        document = {"name": "s", "encoders": encoders, "tasks": ["reviews"], "precision": "auto"}
        document["execution"] = {"device": "cpu"}
        study = resolve_study(document, folder=Path(), origin="test")
        found = resolve_inputs(study).inputs()
        assert found.study.precision == expected
        assert {encoder.precision for encoder in found.encoders} == {expected}
