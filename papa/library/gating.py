"""Causal head gating: what heads do to the loss of a language model (Nam et al., 2025)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas
import torch
from jaxtyping import Bool, Float
from torch import nn

from papa.errors import SpecError
from papa.heads.substitutes import Substitute
from papa.library.ablating import of_batch
from papa.library.batches import Batch
from papa.library.in_memory_scores import (
    FARTHEST,
    LEARNING_RATE,
    MINI_BATCH,
    every_head,
    has_own_rows,
    rows_by_seed,
    trained_shares,
)
from papa.ranking.seeds import HeadScores

PULL = 0.01
"""On the logit of every gate, in nats of the mean loss: gates that change it by less give way."""


STEPS = 240
"""Of AdamW in each of the three runs: at a rate of .05 a gate needs 160 from one bound of the pull
to the other."""
_WINDOW = 20
"""Steps over which a gate's movement is judged."""


def causal_gates(
    model: nn.Module,
    texts: Sequence[Batch],
    substitute: Substitute,
    epochs: int | None,
    learning_rate: float | None,
    seeds: Sequence[int],
    progress: bool,
) -> pandas.DataFrame:
    """Gates g of gA·V + (1-g)·substitute are fitted to the loss alone; from there once with a pull
    to 1 (G⁺) and once to 0 (G⁻). A head is facilitating by G⁻, interfering by 1 - G⁺, and
    irrelevant by G⁺(1 - G⁻): the largest names its ``role``, and G⁻ is the score. A head whose
    gates still moved at the end of a run has no role.
    """
    with torch.no_grad():
        if "loss" not in of_batch(model, texts[0]):
            raise SpecError(
                "by='causal_gates' follows the loss of a language model: give a causal one, or "
                "labels of masked words"
            )
    rate = learning_rate or LEARNING_RATE
    kept: list[np.ndarray] = []
    removed: list[np.ndarray] = []
    heads_by_layer = [*every_head(model).values()]
    settled = np.ones((len(heads_by_layer), len(heads_by_layer[0])), dtype=bool)
    for seed, rows in zip(seeds, rows_by_seed(len(texts), seeds), strict=True):
        of_seed = [texts[row] for row in rows]
        in_all = epochs or math.ceil(STEPS / math.ceil(len(rows) / MINI_BATCH))
        options = model, of_seed, substitute, in_all, rate, seed, progress
        # A gate that lies beyond the reach of the pull would come back too late.
        farthest = 1 / (1 + math.exp(-FARTHEST))
        start = trained_shares(*options)[-1].clip(1 - farthest, farthest)
        for pull, gates in ((PULL, kept), (-PULL, removed)):
            by_step = trained_shares(*options, start, pull)
            gates.append(by_step[-_WINDOW:].mean(axis=0))
            settled &= has_settled(by_step, rate)
    own_rows = has_own_rows(len(texts), seeds)
    scores = np.stack(removed) if own_rows else np.mean(removed, axis=0, keepdims=True)
    frame = HeadScores(scores).frame("causal_gates")
    plus, minus = np.mean(kept, axis=0).ravel(), frame["score"]
    roles = {"facilitating": minus, "interfering": 1 - plus, "irrelevant": plus * (1 - minus)}
    largest = pandas.DataFrame(roles).idxmax(axis=1)
    return frame.assign(**roles, role=largest.where(settled.ravel(), None))


def has_settled(
    by_step: Float[np.ndarray, "steps layers heads"], rate: float
) -> Bool[np.ndarray, "layers heads"]:
    """Whether each gate's logit moved, from one window of steps to the next, less than a fifth of
    what steady steps of AdamW would move it; of fewer steps than two windows none has.
    """
    if len(by_step) < 2 * _WINDOW:
        return np.zeros(by_step.shape[1:], dtype=bool)
    logits = np.log(by_step) - np.log1p(-by_step)
    before = logits[-2 * _WINDOW : -_WINDOW].mean(axis=0)
    moved = np.abs(logits[-_WINDOW:].mean(axis=0) - before)
    return moved < 0.2 * rate * _WINDOW
