"""What several test folders need: the shared data and the embedded encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = (Path(__file__).resolve().parents[2] / "shared").resolve()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real corpora and the golden tensors, beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"real corpora and golden tensors are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2 with its trained weights."""
    from papa.encoders.encoder import load_encoder
    from papa.encoders.reference import EMBEDDED, resolve_encoder
    from papa.spec import EncoderSpec

    return load_encoder(resolve_encoder(EncoderSpec(name=EMBEDDED)))
