"""Scores of seeds from the examples that they classify correctly."""

import numpy as np

from papa.scores.intervals import SeedScores


def hits(correct: np.ndarray) -> SeedScores:
    examples = np.stack([correct.astype(float), np.ones_like(correct, float)], axis=-1)
    scores = dict(enumerate(correct.mean(axis=1).tolist()))
    return SeedScores.from_examples("accuracy", scores, list(examples))
