"""Attention becomes its average, or what else may stand in for it."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def average(step: Step, run: StudyRun) -> bool:
    """Average the attention matrices of an encoder over a text; or make what else may stand in for
    attention, such as mean outputs.

    In: the tokenised text, and the encoder. Out: C, float32 [L, H, S, S], and in how many rows each
    pair of slots was seen. Where: all workers, a shard each; sums in float64 that are
    exact in any grouping, so that any number of workers gives the same bits. What is no average is
    made on a worker.
    """
    return run.compute(step)
