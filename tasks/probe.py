"""A cell gets its scores."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def probe(step: Step, run: StudyRun) -> bool:
    """Train and score a probe while the first heads of an order are constant, or have the model's
    own head answer meanwhile, and score that; and what scores are worth: always the same answer,
    and a probe on word embeddings alone.

    In: the tokenised text, the constant matrices, the scores of heads that the order follows, and
    the encoder. Out: a score a seed, and what every validation row adds to it. Where: a worker,
    which computes the frozen features once for all seeds.
    """
    return run.compute(step)
