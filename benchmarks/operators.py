"""Where the time of a stage goes, by kind of work:
``python -m benchmarks.operators λ|averaging|features [bfloat16]``.

CoLA, one thread; of λ one epoch. A kind's time is the least of several runs, so a neighbour on the
machine distorts it least; the profiler itself makes calls dearer, so shares count, not their sum.
What no operator of PyTorch's accounts for is "Python".
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.setting import TITLES, setting
from benchmarks.stages import average, features, ranking
from papa.spec import Precision

ROWS, RUNS = 96, 3
WHOLE = "one run of the stage"
ARITHMETIC = ("add", "add_", "mul", "mul_", "sub", "div", "sum", "abs", "addcmul", "neg", "where")
KINDS: dict[str, tuple[str, ...]] = {
    "linear maps, forward": ("addmm", "linear", "_FrozenProduct"),
    "linear maps, backward": ("mm", "AddmmBackward0", "_FrozenProductBackward"),
    "linear maps in bfloat16, both ways": ("_linear_pointwise",),
    "attention: products": (
        "bmm",
        "_MixedProduct",
        "_MixedProductBackward",
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    "attention: softmax": ("_softmax", "_softmax_backward_data", "masked_fill_"),
    "tokens packed and unpacked": (
        "index_select",
        "_Packed",
        "_Unpacked",
        "_PackedBackward",
        "_UnpackedBackward",
    ),
    "activation and norms": (
        "gelu",
        "gelu_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
    ),
    "probe: dense map": ("baddbmm",),
    "probe: sums over slots": (
        "_embedding_bag",
        "_embedding_bag_dense_backward",
        "_embedding_bag_per_sample_weights_backward",
        "stack",
        "cat",
    ),
    "optimiser": ("_fused_adamw_", "Optimizer.step#AdamW.step", "linalg_vector_norm"),
    "copies and conversions": ("copy_", "_to_copy", "clone", "constant_pad_nd", "fill_"),
    "other arithmetic": ARITHMETIC,
}


def kind_of(name: str) -> str:
    """The kind of work that an operator does; views and the like are autograd's and PyTorch's own
    doing.
    """
    operator = name.removeprefix("aten::").removeprefix("mkldnn::")
    return next(
        (kind for kind, names in KINDS.items() if operator in names), "views, autograd and the rest"
    )


def by_kind(run: Callable[[], object]) -> Counter[str]:
    """Milliseconds of each kind of work in one run."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded, record_function(WHOLE):
        run()
    spent: Counter[str] = Counter()
    for event in recorded.key_averages():
        kind = "Python" if event.key == WHOLE else kind_of(event.key)
        spent[kind] += event.self_cpu_time_total / 1e3
    return spent


def main(stage: str, precision: Precision = "float32") -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        at = setting("cola", ROWS, Path(folder))
        stages: dict[str, Callable[[], object]] = {
            "λ": partial(ranking, at, average(at), precision),
            "averaging": partial(average, at, precision),
            "features": partial(features, at, precision, folder=Path(folder)),
        }
        runs = [by_kind(stages[stage]) for _ in range(RUNS)]
    least = {kind: min(run[kind] for run in runs) for kind in set().union(*runs)}
    total = sum(least.values())
    print(f"{stage}, {TITLES['cola']}, {ROWS} rows, {precision}, one thread; least of {RUNS}")
    for kind, spent in sorted(least.items(), key=lambda pair: -pair[1]):
        print(f"{kind:40} {spent:8.0f} ms {spent / total:6.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
