"""What a method that scores heads is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import sampled_rows
from papa.encoders.encoder import Encoder
from papa.probes.probes import Probe
from papa.progress import Progress, ignore_progress
from papa.ranking.loss_value import LossValue
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what.

    Attributes:
        encoder: whose heads; frozen, and as before after the call.
        constants: C, the task's own average.
        corpus: the task's text; its training split alone is read.
        task: its labels, metric and probe.
        ranking: the settings that the method's entry names in ``reads``, and ``rows``.
        seed: of all that is drawn.
        scratch: a folder for features.
        execution: what changes speed and never results.
        progress: called with what is done and what there is to do.
        probe: trained on the encoder as it is and frozen, for methods that read one; None where
            none was trained before.
        value: v, where other workers help with it; None: ``frozen_value`` makes it.
    """

    encoder: Encoder
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    scratch: Path
    execution: ExecutionSpec
    progress: Progress = ignore_progress
    probe: Probe | None = None
    value: LossValue | None = None

    @property
    def rows(self) -> Int[np.ndarray, " rows"]:
        """The training rows that heads are scored on: a sample of ``ranking.rows``, drawn by the
        seed, or all.
        """
        return sampled_rows(len(self.corpus.split("train")), self.ranking.rows, self.seed)


@dataclass(frozen=True)
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
