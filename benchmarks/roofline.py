"""Achieved FLOP/s of averaging and features, real tokens only, against a matrix product on the same machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.measure import Measured, seconds
from benchmarks.setting import Setting, encoder
from benchmarks.stages import average, features


def encoder_flops(setting: Setting, *, last_layer: bool) -> float:
    """Multiplications and additions of the encoder on the real tokens of the training text.

    Args:
        setting: the corpus.
        last_layer: whether the last layer runs to its end (features) or only to its attention (averaging).
    """
    model, lengths = encoder(), setting.corpus.split("train").lengths.astype(float)
    width, inner = model.width, model.config.intermediate_size
    tokens, pairs = lengths.sum(), (lengths**2).sum()
    projections, scores = 2 * tokens * width * width, 2 * pairs * width
    layer = 4 * projections + 2 * scores + 2 * 2 * tokens * width * inner
    seen = 2 * projections + scores
    return float(model.layers * layer if last_layer else (model.layers - 1) * layer + seen)


def matrix_product_flops(size: int = 1024, repeats: int = 9) -> float:
    """FLOP/s of a square float32 matrix product: median of repeats."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    torch.matmul(left, right)
    return 2 * size**3 / statistics.median(seconds(lambda: torch.matmul(left, right)) for _ in range(repeats))


def roofline_rows(settings: dict[str, Setting], folder: Path) -> Iterator[Measured]:
    """The share of the machine's matrix-product rate that each stage reaches."""
    for setting in settings.values():
        for stage, work, last in (
            ("averaging", lambda s=setting: average(s), False),
            ("features", lambda s=setting: features(s, folder), True),
        ):
            work()
            shares, rates, peaks = [], [], []
            for _ in range(3):
                peak, spent = matrix_product_flops(), seconds(work)
                rate = encoder_flops(setting, last_layer=last) / spent
                shares.append(rate / peak)
                rates.append(rate)
                peaks.append(peak)
            yield Measured(
                f"{stage}, {setting.name}, share of matrix-product FLOP/s",
                statistics.median(rates) / 1e9,
                statistics.median(peaks) / 1e9,
                statistics.median(shares),
                0.65,
                unit="GFLOP/s",
            )
