"""What a task's scores are worth."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def baseline(step: Step, run: StudyRun) -> bool:
    """Score always the same answer, and a probe on word embeddings alone.

    In: the tokenised text, and the encoder. Out: both scores, a seed each, and what every
    validation row adds to them. Where: a worker.
    """
    return run.compute(step)
