"""An export of a small encoder."""

from pathlib import Path

import pytest

from tests.exported.exports import saved, tokenizer_of
from tests.make import random_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved(random_model("bert").float(), tokenizer_of(), tmp_path / "export")
    return tmp_path / "export"
