"""Heads of a made-up encoder, with matrices that show every pattern, and a score of each."""

from __future__ import annotations

import numpy as np
import pandas
import torch

from papa.reporting.heads import Average


def average_of(
    encoder: str = "all-MiniLM-L6-v2",
    task: str = "reviews",
    *,
    layers: int = 2,
    heads: int = 3,
    slots: int = 8,
    unseen: int = 0,
    special: tuple[int, ...] | None = None,
) -> Average:
    """By turns: on the diagonal, on [CLS], on [SEP], on the next slot, nowhere in particular; as
    many slots before the last as are ``unseen`` were never seen. The first and the last slot are
    special, unless others are given.
    """
    noise = torch.Generator().manual_seed(len(encoder) + slots)
    matrices = 0.02 * torch.rand(layers, heads, slots, slots, generator=noise)
    for number in range(layers * heads):
        own = matrices[divmod(number, heads)]
        match number % 5:
            case 0:
                own.fill_diagonal_(0.7)
            case 1:
                own[:, 0] += 0.6
            case 2:
                own[:, -1] += 0.6
            case 3:
                own[torch.arange(slots - 1), torch.arange(1, slots)] += 0.6
    seen = torch.ones(slots, slots, dtype=torch.bool)
    seen[slots - 1 - unseen : slots - 1] = False
    seen[:, slots - 1 - unseen : slots - 1] = False
    return Average(encoder, task, matrices * seen, seen, special or (0, slots - 1))


def scores_of(average: Average, method: str = "lambda", half: float = 0.02) -> pandas.DataFrame:
    """Rows of ``heads.parquet``: scores that fall from .9 to .1, ± ``half``."""
    layers, heads = average.matrices.shape[:2]
    layer, head = np.indices((layers, heads)).reshape(2, -1)
    score = np.linspace(0.9, 0.1, layers * heads)
    named = {"encoder": average.encoder, "task": average.task, "method": method}
    ends = {"score": score, "low": score - half, "high": score + half}
    return pandas.DataFrame({"layer": layer, "head": head, **ends}).assign(**named)
