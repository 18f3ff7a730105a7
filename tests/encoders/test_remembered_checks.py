"""Checks of encoders are remembered where they passed, and not for other bytes or other code."""

from __future__ import annotations

from pathlib import Path

import pytest

from papa.encoders import files as module
from papa.encoders.files import remembered
from papa.errors import EncoderError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPA_CACHE", str(tmp_path / "cache"))


def test_a_check_that_passed_is_not_made_again() -> None:
    made: list[int] = []

    def check() -> dict[str, int]:
        made.append(1)
        return {"layers": 6}

    assert [remembered("shape", {"configuration": "a"}, check) for _ in range(2)] == [
        {"layers": 6}
    ] * 2
    assert len(made) == 1
    remembered("shape", {"configuration": "b"}, check)
    remembered("weights", {"configuration": "a"}, check)
    assert len(made) == 3


def test_a_check_that_failed_is_made_again() -> None:
    def fails() -> bool:
        raise EncoderError("it does not fit")

    for _ in range(2):
        with pytest.raises(EncoderError, match="does not fit"):
            remembered("weights", {"encoder": "a"}, fails)
    assert remembered("weights", {"encoder": "a"}, lambda: True)


def test_other_code_checks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remembered("weights", {"encoder": "a"}, lambda: 1) == 1
    makers = module._makers()
    assert set(makers) == {"torch", "transformers", "tokenizers", "code"}
    for name in makers:
        monkeypatch.setattr(module, "_makers", lambda name=name: {**makers, name: "another"})
        assert remembered("weights", {"encoder": "a"}, lambda: 2) == 2
