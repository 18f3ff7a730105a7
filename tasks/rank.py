"""Heads get an order."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def rank(step: Step, run: StudyRun) -> bool:
    """Score every head of an encoder on a task: λ, or another method; one seed.

    In: the tokenised text, the average, and for some methods a probe that is trained first. Out: a
    score a head, [L, H]. Where: a worker.
    """
    return run.compute(step)
