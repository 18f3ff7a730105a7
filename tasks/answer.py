"""A model's own head is asked."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def answer(step: Step, run: StudyRun) -> bool:
    """Have a model's own head answer while some heads are constant, and score its answers.

    In: the tokenised text, the constants, and the model. Out: its answers to every validation row,
    or what they score beside those of the unchanged model. Where: a worker; scores in the driver.
    """
    return run.compute(step)
