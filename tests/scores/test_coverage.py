"""Simulated studies: how often an interval holds the truth, and how often a rule that stands on it
is wrong.

The truth is known, seeds and examples are drawn anew for each study. What seeds alone say fails
every one of these checks, so none of them can pass for nothing.
"""

import numpy as np
import pytest

from papa.scores.intervals import (
    Interval,
    SeedScores,
    interval_over_seeds,
    paired_drop,
    relative_drop,
)
from papa.scores.metrics import score_of, score_predictions
from papa.scores.summary import baselines_not_beaten_reason
from papa.scores.verdicts import verdict_on
from papa.spec import Metric
from tests.scores.helpers import seed_scores_of

pytestmark = pytest.mark.unchecked

STUDIES = 200
NOISE = 3 * (0.025 * 0.975 / STUDIES) ** 0.5
"""Three standard deviations of a share of 2.5 % among that many studies."""
POSITIVE = 0.3
ALLOWED = 0.02
SIZES = [(3, 300, 0.0), (5, 300, 0.02), (3, 1000, 0.02), (5, 2000, 0.1)]


def counts(metric: Metric, right: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return score_predictions(
        metric, np.where(right, labels, 1 - labels), labels, ("no", "yes")
    ).examples


def true_score(metric: Metric, right: float) -> float:
    """Of answers that are right with this probability, whatever the label."""
    kinds = counts(metric, np.array([True, False, True, False]), np.array([1, 1, 0, 0]))
    of_label = np.array([POSITIVE, POSITIVE, 1 - POSITIVE, 1 - POSITIVE])
    return float(score_of(metric, (of_label * np.array([right, 1 - right] * 2)) @ kinds))


def seeds_alone(first: SeedScores, replaced: SeedScores) -> Interval:
    size = np.mean(list(first.scores.values()))
    return interval_over_seeds(
        [(first.scores[seed] - replaced.scores[seed]) / size for seed in first.scores]
    )


class Study:
    """Seeds, not examples, decide the ``noisy`` share of answers, of which some are ``right``."""

    def __init__(
        self,
        draw: np.random.Generator,
        metric: Metric,
        seeds: int,
        rows: int,
        noisy: float,
        right: float = 0.85,
    ) -> None:
        self.draw = draw
        self.metric = metric
        self.right = right
        self.shape = (seeds, rows)
        self.labels = (draw.random(rows) < POSITIVE).astype(int)
        self.noisy = draw.random(self.shape) < noisy
        self.hard = draw.random(rows)
        self.kept = draw.random(rows)

    def cell(self, lost: float = 0.0) -> SeedScores:
        """Right less often by this share; what one cell loses, those that lose more lose too."""
        known = (self.hard < self.right) & (self.kept >= lost)
        guessed = self.draw.random(self.shape) < self.right * (1 - lost)
        answers = np.where(self.noisy, guessed, known)
        examples = [counts(self.metric, answer_row, self.labels) for answer_row in answers]
        totals = [float(score_of(self.metric, counted.sum(axis=0))) for counted in examples]
        return seed_scores_of(self.metric, dict(enumerate(totals)), examples)


@pytest.mark.parametrize(
    ("size", "metric", "lost"),
    [
        *((size, "accuracy", 0.02) for size in SIZES),
        (SIZES[1], "matthews", 0.05),
        (SIZES[2], "f1", 0.05),
    ],
)
def test_intervals_over_examples_cover_drops(
    size: tuple[int, int, float], metric: Metric, lost: float
) -> None:
    draw = np.random.default_rng(size[1])
    covered = np.zeros(2)
    truth = relative_drop(true_score(metric, 0.85), true_score(metric, 0.85 * (1 - lost)))
    for _ in range(STUDIES):
        study = Study(draw, metric, *size)
        original = study.cell()
        cell = study.cell(lost)
        both = [rule(original, cell) for rule in (paired_drop, seeds_alone)]
        covered += [drop_interval.low <= truth <= drop_interval.high for drop_interval in both]
    joint, by_seeds = covered / STUDIES
    assert joint >= 0.95 - NOISE
    assert by_seeds < 0.85


@pytest.mark.parametrize("size", SIZES)
def test_a_wrong_within_is_as_rare_as_its_level_says(size: tuple[int, int, float]) -> None:
    """Four numbers of heads, each of which truly costs a little more than what is allowed."""
    draw = np.random.default_rng(size[1])
    wrong = np.zeros(2)
    for _ in range(STUDIES):
        study = Study(draw, "accuracy", *size)
        original = study.cell()
        cells = [study.cell(ALLOWED + step * 1e-4) for step in range(1, 5)]
        for rule, drop_of in enumerate((paired_drop, seeds_alone)):
            all_within = True
            verdicts = []
            for cell in cells:
                drop = drop_of(original, cell)
                verdicts.append(
                    verdict_on(drop.low, drop.high, ALLOWED, smaller_are_within=all_within)
                )
                all_within = verdicts[-1] == "within"
            wrong[rule] += "within" in verdicts
    joint, by_seeds = wrong / STUDIES
    assert joint <= 0.025 + NOISE
    assert by_seeds > 0.025 + NOISE


@pytest.mark.parametrize("size", [(3, 300, 0.1), (5, 1000, 0.05)])
def test_an_original_as_good_rarely_beats_baselines(size: tuple[int, int, float]) -> None:
    """It is right as often as one answer and as word embeddings alone are."""
    draw = np.random.default_rng(size[1])
    wrong = np.zeros(2)
    for _ in range(STUDIES):
        probe, words, answer = (Study(draw, "accuracy", *size, right=0.6).cell() for _ in range(3))
        same = (
            dict.fromkeys(probe.scores, values[0]) for values in (answer.scores, answer.influence)
        )
        one_answer = SeedScores(*same)
        low = interval_over_seeds(list(probe.scores.values())).low
        above = all(low > np.mean(list(rival.scores.values())) for rival in (words, one_answer))
        wrong += [not baselines_not_beaten_reason(probe, one_answer, words), above]
    joint, by_seeds = wrong / STUDIES
    assert joint <= 0.025 + NOISE
    assert by_seeds > 0.025 + NOISE
