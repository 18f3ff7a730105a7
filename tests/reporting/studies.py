"""Results of studies, made up but of the shape that the pipeline writes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy
import pandas

from papa.reporting.report import Findings
from papa.scores.summary import summarise
from papa.spec import StudySpec

FRACTIONS = (1.0, 0.5, 0.125, 0.0625, 0.0)
HEADS = 72
LOG = "negative_log_perplexity"
ROWS = 4000


@cache
def influence(accuracy: float) -> numpy.ndarray:
    """Of each example on an accuracy; whoever is right more often is right wherever others are."""
    correct = numpy.random.default_rng(0).random(ROWS) < accuracy
    return ((correct - correct.mean()) / (ROWS - 1)).astype(numpy.float32)


def results(
    encoders: Sequence[str] = ("all-MiniLM-L6-v2",),
    tasks: Sequence[tuple[str, str]] = (("reviews", "accuracy"),),
    constants: Sequence[str] = ("average",),
    orders: Sequence[str] = ("lambda",),
    fractions: Sequence[float] = FRACTIONS,
    seeds: Sequence[int] = (0, 1, 2),
) -> pandas.DataFrame:
    """A row for every cell and seed; scores at fractions 1 and 0 are equal wherever the method
    makes them equal.
    """
    rows = []
    cells = product(encoders, tasks, constants, orders, fractions)
    for encoder, (task, metric), kind, order, fraction in cells:
        own = ((kind,) if fraction < 1 else ()) + ((order,) if 0 < fraction < 1 else ())
        shared = repr(((encoder, task, *own), fraction))
        noise = numpy.random.default_rng(zlib.crc32(shared.encode()))
        lost = (1 - fraction) ** 3 * (0.03 + 0.05 * constants.index(kind))
        base = 0.78 - 0.06 * encoders.index(encoder) - lost
        for seed in seeds:
            rows.append(
                {
                    "encoder": encoder,
                    "task": task,
                    "constants": kind,
                    "order": order,
                    "fraction": fraction,
                    "constant_heads": round((1 - fraction) * HEADS),
                    "seed": seed,
                    "metric": metric,
                    "score": base + 0.004 * noise.normal(),
                    "seconds": 1.5,
                    "unseen_share": 0.0012,
                    "heads": HEADS,
                    "classes": "",
                    "positive": "equivalent" if metric == "f1" else "",
                    "always_one_answer": -7.0 if metric == LOG else 0.5,
                    "one_answer": "" if metric == LOG else "negative",
                    "word_embeddings": (-6.0 if metric == LOG else 0.6) + 0.001 * seed,
                    "influence": influence(base),
                    "one_answer_influence": influence(0.5),
                    "word_embeddings_influence": influence(0.6),
                }
            )
    return pandas.DataFrame(rows)


def findings(frame: pandas.DataFrame, **more: Any) -> Findings:
    """What a page shows of such results."""
    heads = more.pop(
        "heads",
        pandas.DataFrame(
            columns=["encoder", "task", "method", "layer", "head", "score", "low", "high"]
        ),
    )
    return Findings(study(frame), frame, summarise(frame), heads, **more)


def study(frame: pandas.DataFrame) -> StudySpec:
    """The specification that such results belong to."""
    metrics = frame.drop_duplicates("task").set_index("task")["metric"]
    return StudySpec.model_validate(
        {
            "name": "example",
            "encoders": [{"name": name} for name in frame["encoder"].unique()],
            "tasks": [
                {
                    "name": name,
                    "kind": "text",
                    "source": {"kind": "embedded"},
                    "columns": {"text": "text", "label": "label"},
                    "metric": metric,
                    "slots": 64,
                    "probe": {"learning_rate": 5e-4, "batch_size": 32, "epochs": 4},
                }
                for name, metric in metrics.items()
            ],
            "constants": [{"kind": kind} for kind in frame["constants"].unique()],
            "orders": list(frame["order"].unique()),
            "fractions": list(frame["fraction"].unique()),
            "seeds": [int(seed) for seed in frame["seed"].unique()],
        }
    )
