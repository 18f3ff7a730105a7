"""``python -m benchmarks.dtypes``: what the precision of stored features does to scores, disk and
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any, get_args

import torch

from benchmarks.document import put, table
from benchmarks.setting import TITLES as TEXTS
from benchmarks.setting import Setting, encoder, setting
from benchmarks.stages import SEEDS
from benchmarks.timing import seconds
from papa.probes.evaluate import evaluate_cell
from papa.probes.features import feature_bytes
from papa.spec import ExecutionSpec, FeaturesSpec, Precision

THREADS, REPEATS = 2, 2
TITLES = ("task", "metric", "features.dtype", "scores of seeds", "mean", "disk", "time")
ROWS = {"cola": 2000, "ud": 800, "rte": 400}


def rows(folder: Path) -> Iterator[list[str]]:
    """Task, metric, precision, each seed's score, their mean, megabytes on disk, seconds."""
    for name, count in ROWS.items():
        text = setting(name, count, folder, validation=count)
        for dtype in get_args(Precision):
            options = {
                "features": FeaturesSpec(dtype=dtype),
                "execution": ExecutionSpec(),
                "scratch": folder,
            }
            scores = list[float]()

            def score(
                text: Setting = text, options: Any = options, scores: list[float] = scores
            ) -> None:
                found = evaluate_cell(encoder(), text.corpus, text.task, SEEDS, **options)
                scores[:] = [scored.score for scored in found]

            spent = min(seconds(score) for _ in range(REPEATS))
            size = sum(
                feature_bytes(encoder(), text.corpus.split(split), dtype)
                for split in ("train", "validation")
            )
            yield [
                TEXTS[name],
                text.task.metric,
                dtype,
                " ".join(f"{score:.4f}" for score in scores),
                f"{mean(scores):.4f}",
                f"{size / 1e6:.0f} MB",
                f"{spent:.1f} s",
            ]


def main() -> None:
    """Measure, print, and put the table into ``measured.md``."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        text = table(TITLES, rows(Path(folder)))
    put("dtypes", text)
    print(text)


if __name__ == "__main__":
    main()
