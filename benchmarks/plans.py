"""The cost model of ``papa plan`` against real steps on the embedded encoder, one after the other
in this process.

Seconds are those of this process's own clock, so that other processes count less, and the rate of a
matrix product is measured beside each step.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.setting import task_entry
from flows.check import check_study
from papa.encoders.reference import EMBEDDED
from papa.progress import Bars, ignore_progress
from papa.spec import ExecutionSpec
from papa.spec.file import resolve_study
from papa.study.costs import SHARES, one_core
from papa.study.here import ThisProcess
from papa.study.step import Session
from papa.study.steps import StudySteps
from papa.study.store import Store

STUDY: dict[str, Any] = {
    "encoders": [EMBEDDED],
    "orders": ["lambda"],
    "fractions": [1, 0.5, 0],
    "seeds": [0, 1],
    "ranking": {"epochs": 1, "seeds": [0]},
}
SETTINGS = (
    ("cola", 400, 2),
    ("ud_pos", 240, 2),
    ("rte", 96, 2),
    ("cola", 1200, 6),
    ("ud_pos", 120, 8),
)
"""Corpus, training rows, epochs: the shares of ``papa/study/costs.py`` were chosen on these."""
HELD_BACK = (
    ("wnut17", 240, 3),
    ("wnut17", 600, 5),
    ("cola", 700, 4),
    ("rte", 180, 5),
    ("ud_pos", 320, 3),
)
"""Likewise, of studies that had no part in the choice."""


def planned(corpus: str, rows: int, epochs: int, store: Store) -> StudySteps:
    """The steps of a study of some rows of a corpus."""
    sized = {"train_rows": rows, "validation_rows": rows // 4}
    probe = {"epochs": epochs, "learning_rate": 5e-4, "batch_size": 16}
    document = {
        "name": "measured",
        **STUDY,
        "tasks": [{**task_entry(corpus), **sized, "probe": probe}],
    }
    return check_study(
        resolve_study(document, folder=store.root, origin="benchmarks"), store, workers=1
    ).steps


def measured(
    corpus: str, rows: int, epochs: int, store: Store
) -> list[tuple[str, float, float, float]]:
    """Run its steps: of each the stage, the planned operations, its seconds, and a core's rate
    beside it.
    """
    store.make()
    found = []
    session = Session(store, ThisProcess("cpu"), ExecutionSpec(), Bars(shown=False))
    rate = one_core(384).flops
    for step in planned(corpus, rows, epochs, store).steps[:-2]:
        step.run(session, ignore_progress)
        after = one_core(384).flops
        if step.stage in SHARES:
            metadata = store.metadata(step.stage)
            own = next(document for document in metadata if document["key"] == step.key)
            found.append((step.stage, step.flops, own["worker_seconds"], (rate + after) / 2))
        rate = after
    return found


def errors(
    settings: Sequence[tuple[str, int, int]], folder: Path
) -> dict[str, dict[str, list[float]]]:
    """How far off a plan would be for each step, by stage: by the machine's rate, and by a corpus's
    first study's.
    """
    found: dict[str, dict[str, list[float]]] = {
        name: defaultdict(list) for name in ("machine", "first study")
    }
    first: dict[tuple[str, str], float] = {}
    for number, (corpus, rows, epochs) in enumerate(settings):
        known = dict(first)
        for stage, flops, seconds, rate in measured(
            corpus, rows, epochs, Store(folder / str(number))
        ):
            share = flops / seconds / rate
            found["machine"][stage].append(share / SHARES[stage] - 1)
            if (corpus, stage) in known:
                found["first study"][stage].append(share / known[corpus, stage] - 1)
            first.setdefault((corpus, stage), share)
            print(
                f"{corpus} {rows} × {epochs} {stage}: {seconds:.2f} s, {share:.2f} of a core's "
                "rate",
                flush=True,
            )
    return found


def main() -> None:
    """Print each step's seconds, and how far off a plan would be."""
    torch.set_num_threads(1)
    for name, settings in (
        ("studies that the shares were chosen on", SETTINGS),
        ("studies held back", HELD_BACK),
    ):
        with tempfile.TemporaryDirectory() as folder:
            found = errors(settings, Path(folder))
        for by, stages in found.items():
            for stage, off in stages.items():
                sizes = [abs(error) for error in off]
                print(
                    f"{name}: {stage}, by the {by}'s rate: {len(off)} steps, off by "
                    f"{statistics.median(sizes):.0%}, {max(sizes):.0%} at most",
                    flush=True,
                )


if __name__ == "__main__":
    main()
