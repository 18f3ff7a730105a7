"""What a method that scores heads is asked, by what it reads labels, and what it answers.

Labels are read by a probe that is trained on the encoder as it is and then frozen, or by the
model's own head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from papa.attention.constants import ConstantMatrices
from papa.corpora.corpus import TokenisedCorpus
from papa.probes.own import OwnHead
from papa.probes.probes import Probe
from papa.progress import Progress, ignore_progress
from papa.ranking.learned import HeadLoss, OwnLoss, ProbeLoss
from papa.ranking.seeds import rows_of_seed
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what.

    Attributes:
        encoder: an ``Encoder``, whose heads; frozen, and as before after the call. None of a
            decoder, which has its ``own`` head alone.
        constants: C, the task's own average.
        corpus: the task's text; its training split alone is read.
        ranking: the settings that the method's entry names in ``reads``, and ``rows``.
        seed: of all that is drawn.
        probe: trained on the encoder as it is and frozen, for methods that read it.
        own: the model with its own head, where that answers the task.
    """

    encoder: Any
    constants: ConstantMatrices
    corpus: TokenisedCorpus
    task: TaskSpec
    ranking: RankingSpec
    seed: int
    execution: ExecutionSpec
    progress: Progress = ignore_progress
    probe: Probe | None = None
    own: OwnHead | None = None

    @property
    def rows(self) -> Int[np.ndarray, " rows"]:
        """The training rows that heads are scored on: ``ranking.rows`` of the seed's, or all."""
        return rows_of_seed(len(self.corpus.split("train")), self.ranking.rows, self.seed)

    @property
    def size(self) -> tuple[int, int]:
        """Layers, and heads in each."""
        layers, heads = self.constants.values.shape[:2]
        return layers, heads

    def loss(self) -> HeadLoss:
        """Of what the model's own head answers, or of the frozen probe."""
        if self.own is not None:
            return OwnLoss(self.own, self.corpus, self.task)
        assert self.probe is not None, "an entry with frozen_probe"
        return ProbeLoss(self.encoder, self.probe, self.corpus)


@dataclass(frozen=True)
class Scored:
    """The scores of all heads, of which the smallest becomes constant first; the standard error, if
    the method has one, and of how many draws; and the ``evaluations``: forward passes over the
    rows, gradients counted as one more each.
    """

    values: Float[np.ndarray, "layers heads"]
    standard_error: Float[np.ndarray, "layers heads"] | None
    evaluations: int
    draws: int = 0
