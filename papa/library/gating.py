"""Causal head gating: what heads do to the loss of a language model (Nam et al., 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn

from papa.errors import SpecError
from papa.heads.substitutes import Substitute
from papa.library.ablating import of_batch
from papa.library.head_scores import trained_lambda
from papa.ranking.seeds import HeadScores

PULL = 0.01
"""On the logit of every gate, in nats of the mean loss: gates that change it by less give way."""


def causal_gates(
    model: nn.Module,
    batches: Sequence[Mapping[str, Any]],
    substitute: Substitute,
    epochs: int,
    learning_rate: float,
    seeds: Sequence[int],
    progress: bool,
) -> pandas.DataFrame:
    """Gates g of gA·V + (1-g)·substitute are fitted to the loss alone; from there once with a pull
    to 1 (G⁺) and once to 0 (G⁻). A head is facilitating by G⁻, interfering by 1 - G⁺, and
    irrelevant by G⁺(1 - G⁻): the largest names its ``role``, and G⁻ is the score.
    """
    with torch.no_grad():
        if "loss" not in of_batch(model, batches[0]):
            raise SpecError(
                "by='causal_gates' follows the loss of a language model: give a causal one, or "
                "labels of masked words"
            )
    kept, removed = list[np.ndarray](), list[np.ndarray]()
    for seed in seeds:
        how = model, batches, substitute, epochs, learning_rate, seed, progress
        start = trained_lambda(*how)
        kept.append(trained_lambda(*how, start, PULL))
        removed.append(trained_lambda(*how, start, -PULL))
    frame = HeadScores(np.stack(removed)).frame("causal_gates")
    plus, minus = np.mean(kept, axis=0).ravel(), frame["score"]
    roles = {"facilitating": minus, "interfering": 1 - plus, "irrelevant": plus * (1 - minus)}
    return frame.assign(**roles, role=pandas.DataFrame(roles).idxmax(axis=1))
