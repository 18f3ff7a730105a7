"""Made-up answers of head orders, of which is known how good they are."""

from __future__ import annotations

import numpy as np

from papa.scores.intervals import Measured

ROWS = 150


def hits(correct: np.ndarray) -> Measured:
    """The accuracy of right and wrong answers, bool [seeds, rows]."""
    examples = np.stack([correct.astype(float), np.ones_like(correct, float)], axis=-1)
    return Measured.of("accuracy", dict(enumerate(correct.mean(axis=1).tolist())), list(examples))


def lists_of_noise(
    numbers: np.random.Generator, fixed: int, seeds: int = 5, over_lists: float = 0.1
) -> list[Measured]:
    """Accuracies of ``fixed`` orders of one list each, and of random ones, which draw a list for
    each seed: lists differ, and no order knows anything.
    """
    hard, found = numbers.normal(size=ROWS), []
    answers = numbers.normal(size=(fixed + seeds, ROWS))
    for number in range(fixed + 1):
        lists = [number] * seeds if number < fixed else range(fixed, fixed + seeds)
        shares = [over_lists * answers[at, :3].sum() for at in lists]
        noise = 0.5 * answers[lists] + 0.3 * numbers.normal(size=(seeds, ROWS))
        found.append(hits(hard + noise < 0.8 + np.array(shares)[:, None]))
    return found
