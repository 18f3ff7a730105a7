"""How near averaging and features come to the machine's rate of matrix products, real tokens only.

The plain way is as many multiplications and additions in square matrix products: the ratio is the
share of their rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.rows import SIZE, Row
from benchmarks.setting import CORPORA, Setting, encoder, sample
from benchmarks.stages import average, features
from benchmarks.timing import Comparison, Part, in_turn


def encoder_flops(setting: Setting, *, last_layer: bool) -> float:
    """Multiplications and additions of the encoder on the real tokens of the training text, with
    the last layer to its end (features) or only to its attention (averaging).
    """
    model, lengths = encoder(), setting.corpus.split("train").lengths.astype(float)
    width, inner = model.width, model.config.intermediate_size
    tokens, pairs = lengths.sum(), (lengths**2).sum()
    projections, scores = 2 * tokens * width * width, 2 * pairs * width
    layer = 4 * projections + 2 * scores + 2 * 2 * tokens * width * inner
    seen = 2 * projections + scores
    return float(model.layers * layer if last_layer else (model.layers - 1) * layer + seen)


def share(
    name: str, folder: Path, work: Callable[[Setting], object], last_layer: bool
) -> Comparison:
    """A stage against matrix products of as many operations, in GFLOP/s."""
    setting = sample(name, folder)
    operations, product = encoder_flops(setting, last_layer=last_layer), 2 * SIZE**3
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    count = round(operations / product)

    def products() -> None:
        for _ in range(count):
            torch.matmul(left, right)

    found = in_turn(lambda: work(setting), Part(products, operations / product / count))
    rates = {way: operations / 1e9 / getattr(found, way) for way in ("ours", "plain")}
    return replace(found, **rates, unit="GFLOP/s")


def roofline_rows(folder: Path) -> Iterator[Row]:
    """The share of the machine's matrix-product rate that each stage reaches."""
    for name, title in CORPORA.items():
        for stage, work, last in (
            ("averaging", average, False),
            ("features", partial(features, folder=folder), True),
        ):
            measure = partial(share, name, folder, work, last)
            yield Row("flops", f"{stage}, {title}, share of matrix-product FLOP/s", 0.65, measure)
