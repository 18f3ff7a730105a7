"""Invented results of studies and matrices of heads, in the shape that the pipeline writes."""

import zlib
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy
import pandas
import torch

from papa.reporting.heads import AttentionAverage
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
    """A row for every cell and seed; scores are equal wherever the method makes them equal."""
    rows = []
    cells = product(encoders, tasks, constants, orders, fractions)
    for encoder, (task, metric), kind, order, fraction in cells:
        what_differs = ((kind,) if fraction < 1 else ()) + ((order,) if 0 < fraction < 1 else ())
        shared = repr(((encoder, task, *what_differs), fraction))
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


def findings(frame: pandas.DataFrame, **sections: object) -> Findings:
    sections = {"heads": pandas.DataFrame(), **sections}
    return Findings(study(frame), frame, summarise(frame), **sections)


def study(frame: pandas.DataFrame) -> StudySpec:
    metrics = frame.drop_duplicates("task").set_index("task")["metric"]
    return StudySpec.model_validate(
        {
            "name": "example",
            "encoders": [{"name": name} for name in frame["encoder"].unique()],
            "tasks": [
                {
                    "name": name,
                    "kind": "mlm" if metric == LOG else "text",
                    "source": {"kind": "embedded"},
                    "columns": {"text": "text"} | ({} if metric == LOG else {"label": "label"}),
                    "metric": metric,
                    "slots": 64,
                    "probe": {"learning_rate": 5e-4, "batch_size": 32, "epochs": 4},
                }
                for name, metric in metrics.items()
            ],
            "substitutes": [{"kind": kind} for kind in frame["constants"].unique()],
            "orders": list(frame["order"].unique()),
            "keep": list(frame["fraction"].unique()),
            "probe_seeds": [int(seed) for seed in frame["seed"].unique()],
        }
    )


def average_of(
    encoder: str = "all-MiniLM-L6-v2",
    *,
    layers: int = 2,
    heads: int = 3,
    slots: int = 8,
    unseen: int = 0,
) -> AttentionAverage:
    """By turns: on the diagonal, on [CLS], on [SEP], on the next slot, nowhere in particular; the
    ``unseen`` slots before the last were never seen.
    """
    noise = torch.Generator().manual_seed(len(encoder) + slots)
    matrices = 0.02 * torch.rand(layers, heads, slots, slots, generator=noise)
    for number in range(layers * heads):
        head_matrix = matrices[divmod(number, heads)]
        match number % 5:
            case 0:
                head_matrix.fill_diagonal_(0.7)
            case 1:
                head_matrix[:, 0] += 0.6
            case 2:
                head_matrix[:, -1] += 0.6
            case 3:
                head_matrix[torch.arange(slots - 1), torch.arange(1, slots)] += 0.6
    visible = torch.ones(slots, slots, dtype=torch.bool)
    visible[slots - 1 - unseen : slots - 1] = False
    visible[:, slots - 1 - unseen : slots - 1] = False
    return AttentionAverage(encoder, "reviews", matrices * visible, visible, (0, slots - 1))


def scores_of(
    average: AttentionAverage, method: str = "lambda", half: float = 0.02
) -> pandas.DataFrame:
    """Rows of ``heads.parquet``: scores that fall from .9 to .1, ± ``half``."""
    layers, heads = average.matrices.shape[:2]
    layer, head = numpy.indices((layers, heads)).reshape(2, -1)
    score = numpy.linspace(0.9, 0.1, layers * heads)
    return pandas.DataFrame(
        {
            "layer": layer,
            "head": head,
            "score": score,
            "low": score - half,
            "high": score + half,
            "encoder": average.encoder,
            "task": average.task,
            "method": method,
        }
    )


def joint_effects(
    redundancy: float = 0.2, p: float = 0.01, p_holm: float = 0.5
) -> pandas.DataFrame:
    """Rows of ``joint_effects.csv``: redundancies of three sets, and growing ones of seven pairs,
    with these p values.
    """
    frame = pandas.DataFrame(
        {
            "encoder": "all-MiniLM-L6-v2",
            "task": "reviews",
            "fraction": [0.875, 0.5, 0.25] + [float("nan")] * 7,
            "pair": [""] * 3 + [f"L0H0 + L1H{head}" for head in range(7)],
            "count": [9, 36, 54] + [2] * 7,
            "single_sum": [0.01, 0.05, 0.1] + [0.001] * 7,
            "redundancy": [redundancy] * 3 + [redundancy * (1 + head / 10) for head in range(7)],
            "p": [p] * 10,
            "p_holm": [float("nan")] * 3 + [p_holm] * 7,
        }
    )
    frame["joint"] = frame["single_sum"] + redundancy
    for column in ("joint", "single_sum", "redundancy"):
        frame[f"{column}_low"] = frame[column] - 0.05
        frame[f"{column}_high"] = frame[column] + 0.05
    return frame
