"""Text becomes tokens."""

from __future__ import annotations

from papa.study.step import Step
from tasks.stage import StudyRun, stage


@stage
def tokenise(step: Step, run: StudyRun) -> bool:
    """Lay a text out in S slots, one encoder's tokens in each.

    In: rows of a source, and the encoder's tokenizer. Out: token ids by row, as Arrow shards; the
    training and the validation split. Where: a worker; of a cluster the driver, as the source may
    lie on its machine alone.
    """
    return run.compute(step)
