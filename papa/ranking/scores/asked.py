"""What a method that scores heads is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.progress import Progress, ignore_progress
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec

EVALUATIONS = 2_000
"""How often a method with a budget may value a set of heads, where nothing else is said."""


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what.

    Attributes:
        encoder: whose heads; frozen, and as before after the call.
        constants: C, what heads outside of a set use.
        corpus: the task's text; its training split alone is read.
        task: its labels and probe.
        ranking: rows, and where something is trained, epochs and learning rate.
        seed: of all that is drawn.
        scratch: a folder for features.
        execution: what changes speed and never results.
        evaluations: how often a method with a budget may value a set of heads.
        progress: called with what is done and what there is to do.
    """

    encoder: Encoder
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    scratch: Path
    execution: ExecutionSpec
    evaluations: int = EVALUATIONS
    progress: Progress = ignore_progress


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of all heads.

    Attributes:
        values: the smallest becomes constant first.
        standard_error: of the values; None where the method has none.
        evaluations: forward passes over the rows, gradients counted as one more each.
    """

    values: Float[np.ndarray, "layers heads"]
    standard_error: Float[np.ndarray, "layers heads"] | None
    evaluations: int
