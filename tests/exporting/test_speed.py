"""The gain in speed: measured in turn, at several sizes, with an interval; what is not gained is
said first.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from papa.exporting import measuring
from papa.exporting.card import report_rows
from papa.exporting.gains import gained
from papa.exporting.measuring import BATCHES, timings
from papa.timing import LEAST
from tests.exporting.conftest import Case, document_with


class Recorder:
    """Calls that a measurement makes, by name and shape."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def of(self, name: str) -> Any:
        def call(inputs: dict[str, torch.Tensor]) -> None:
            assert inputs["attention_mask"].shape == inputs["input_ids"].shape
            self.calls.append((name, tuple(inputs["input_ids"].shape)))

        return call


def test_every_size_is_timed_in_pairs(small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BUDGET", 60.0)
    recorder = Recorder()
    found = timings(recorder.of("exported"), recorder.of("original"), small.split, small.layout)
    sizes = [(timing["batch"], timing["longest"]) for timing in found["timings"]]
    assert {batch for batch, _ in sizes} == set(BATCHES)
    assert len({longest for batch, longest in sizes if batch == 1}) == 3
    assert found["left_out"] == []
    for timing in found["timings"]:
        assert timing["low"] <= timing["ratio"] <= timing["high"]
        assert timing["pairs"] >= LEAST
    for first, second in zip(recorder.calls[::2], recorder.calls[1::2], strict=True):
        assert {first[0], second[0]} == {"exported", "original"}
        assert first[1] == second[1]
    firsts = [name for name, _ in recorder.calls[::2]]
    assert len(set(firsts)) == 2, "the order within pairs is drawn"


def test_sizes_that_there_is_no_time_for_are_named(small: Case) -> None:
    recorder = Recorder()
    found = timings(recorder.of("exported"), recorder.of("original"), small.split, small.layout)
    assert len(found["timings"]) == 1
    assert len(found["left_out"]) == 8
    assert "not measured, for want of time: " in gained(found)
    batch, longest = found["left_out"][-1]
    assert f"{batch} texts × {longest} tokens" in gained(found)


def timing(batch: int, low: float, high: float) -> dict[str, float]:
    return {
        "batch": batch,
        "longest": 20,
        "original_seconds": 0.002,
        "exported_seconds": 0.001,
        "ratio": (low + high) / 2,
        "low": low,
        "high": high,
        "pairs": 6,
    }


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            [timing(1, 0.9, 1.1), timing(16, 1.2, 1.4)],
            "no sure gain at 1 text × 20 tokens; 1.30× at the others",
        ),
        ([timing(1, 0.9, 1.1), timing(16, 0.9, 1.4)], "no sure gain at any size measured"),
        (
            [timing(1, 0.6, 0.8), timing(16, 0.9, 1.4)],
            "slower, 0.70×, at 1 text × 20 tokens; no sure gain at the others",
        ),
        (
            [timing(1, 0.6, 0.8), timing(16, 0.9, 1.4), timing(64, 1.2, 1.4)],
            "slower, 0.70×, at 1 text × 20 tokens; no sure gain at 16 texts × 20 tokens; "
            "1.30× at the others",
        ),
        (
            [timing(1, 0.6, 0.8), timing(16, 0.4, 0.6)],
            "slower, 0.50 to 0.70×, at every size measured",
        ),
        ([timing(1, 1.1, 1.3), timing(16, 1.4, 1.6)], "1.20 to 1.50× at every size measured"),
    ],
)
def test_what_is_not_gained_is_said_first(found: list[dict[str, float]], sentence: str) -> None:
    how = {"left_out": [], "threads": 2, "device": "CPU", "attention": "sdpa"}
    rows = report_rows(document_with(speed={"timings": found, **how}))
    assert rows[0] == ("Speed", sentence)
    assert ("Speed, 16 texts × 20 tokens", f"{found[1]['ratio']:.2f}× ") in [
        (what, told[:6]) for what, told in rows
    ]
