"""Heads of a made-up encoder, with matrices that show every pattern."""

from __future__ import annotations

import numpy as np
import torch

from papa.attention.patterns import head_patterns
from papa.ranking.seeds import TrainedLambda
from papa.reporting.heads import HeadsOfEncoder
from papa.spec.orders import head_order


def heads_of(
    encoder: str = "all-MiniLM-L6-v2",
    task: str = "reviews",
    *,
    layers: int = 2,
    heads: int = 3,
    slots: int = 8,
    unseen: int = 0,
    ranked: bool = True,
    special: tuple[int, ...] | None = None,
) -> HeadsOfEncoder:
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
    special = special or (0, slots - 1)
    falling = np.linspace(0.9, 0.1, layers * heads).reshape(1, layers, heads)
    lambdas = TrainedLambda({seed: falling + 0.01 * (seed - 0.5) for seed in (0, 1)})
    orders = {
        name: head_order(name, lambdas.mean, layers, heads)
        for name in (("lambda", "first_to_last") if ranked else ("first_to_last",))
    }
    patterns = head_patterns(matrices, seen, special)
    shown = matrices * seen, seen, special, patterns, lambdas if ranked else None, orders
    return HeadsOfEncoder(encoder, task, *shown)
