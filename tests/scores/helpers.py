"""Scores of seeds from the examples that they classify correctly."""

from collections.abc import Sequence

import numpy as np

from papa.scores.intervals import SeedScores, example_unit
from papa.scores.metrics import influence


def hits(correct: np.ndarray) -> SeedScores:
    examples = np.stack([correct.astype(float), np.ones_like(correct, float)], axis=-1)
    scores = dict(enumerate(correct.mean(axis=1).tolist()))
    return seed_scores_of("accuracy", scores, list(examples))


def seed_scores_of(
    metric: str, scores: dict[int, float], examples_by_seed: Sequence[np.ndarray]
) -> SeedScores:
    influences = [influence(metric, examples) for examples in examples_by_seed]
    return SeedScores(scores, dict(zip(scores, influences, strict=True)), example_unit(metric))
