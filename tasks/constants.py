"""Constant matrices that are no average over a text."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def constants(step: Step, run: StudyRun) -> bool:
    """Make what else may stand in for attention: identity, Toeplitz, zeros, mean outputs.

    In: nothing, an average, or a tokenised text and the encoder. Out: constant matrices
    [L, H, S, S], or constant outputs of heads. Where: the driver, or a worker where the encoder
    runs.
    """
    return run.compute(step)
