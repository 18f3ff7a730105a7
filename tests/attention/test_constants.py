"""Constant matrices know which encoder and S they were made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from papa.attention.constants import FILE, ConstantMatrices, control
from papa.encoders.reference import EMBEDDED, EncoderReference, resolve_encoder
from papa.errors import ArtifactError
from papa.spec import EncoderSpec


@pytest.fixture(scope="module")
def reference() -> EncoderReference:
    return resolve_encoder(EncoderSpec(name=EMBEDDED))


def test_saved_and_loaded(tmp_path: Path, reference: EncoderReference) -> None:
    constants = ConstantMatrices(torch.rand(6, 12, 8, 8), torch.rand(8, 8) > 0.5, "average")
    constants.save(tmp_path / "c", reference, {})
    loaded = ConstantMatrices.load(tmp_path / "c", encoder=reference, slots=8)
    assert torch.equal(loaded.matrices, constants.matrices)
    assert torch.equal(loaded.seen, constants.seen)
    assert loaded.kind == "average"


def test_what_does_not_fit_is_said(tmp_path: Path, reference: EncoderReference) -> None:
    control("toeplitz", 6, 12, 8).save(tmp_path / "c", reference, {})
    with pytest.raises(
        ArtifactError, match=r"made for S=8, this study uses S=16: rerun 'average' or set slots: 8"
    ):
        ConstantMatrices.load(tmp_path / "c", encoder=reference, slots=16)
    other = replace(reference, name="other", digest="0" * 64)
    with pytest.raises(
        ArtifactError, match=r"made for encoder embedded/all-MiniLM-L6-v2 .*this study uses other"
    ):
        ConstantMatrices.load(tmp_path / "c", encoder=other)
    (path,) = (tmp_path / "c").rglob(FILE)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match="is damaged"):
        ConstantMatrices.load(tmp_path / "c")


def test_controls() -> None:
    assert torch.equal(control("identity", 2, 3, 4).matrices[1, 2], torch.eye(4))
    assert torch.equal(control("zeros", 2, 3, 4).matrices, torch.zeros(2, 3, 4, 4))
    assert control("toeplitz", 2, 3, 4).matrices[0, 0, 0].tolist() == pytest.approx(
        [1, 1 / 2, 1 / 3, 1 / 4]
    )
    assert torch.equal(
        control("toeplitz", 2, 3, 4).matrices[0, 0], control("toeplitz", 2, 3, 4).matrices[0, 0].T
    )
