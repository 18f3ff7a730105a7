"""What a method that scores heads is asked, by what it reads labels, and what it answers.

Labels are read by a probe that is trained on the encoder as it is and then frozen, or by the
model's own head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from papa.attention.constants import ConstantMatrices
from papa.attention.substitutes import Substitute
from papa.corpora.corpus import TokenisedCorpus
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import train_probes
from papa.probes.own import opened_own
from papa.probes.probes import Probe
from papa.probes.training import JointLearner
from papa.progress import Progress, ignore_progress
from papa.ranking.learned import lambda_spec
from papa.ranking.losses import OwnLoss
from papa.ranking.rows import rows_of_seed
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec


@dataclass(frozen=True)
class Asked:
    """Which heads are scored, and by what.

    Attributes:
        encoder: whose heads; frozen, and as before after the call.
        constants: C, the task's own average.
        corpus: the task's text; its training split alone is read.
        ranking: the settings that the method's entry names in ``reads``, and ``rows``.
        seed: of all that is drawn.
        scratch: a folder for features.
        probe: trained on the encoder as it is and frozen; None where none was trained before.
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

    @property
    def rows(self) -> Int[np.ndarray, " rows"]:
        """The training rows that heads are scored on: ``ranking.rows`` of the seed's, or all."""
        return rows_of_seed(len(self.corpus.split("train")), self.ranking.rows, self.seed)

    def frozen_probe(self) -> Probe:
        """The task's probe, trained on the encoder as it is and frozen: as given, or now."""
        if self.probe is not None:
            return self.probe
        given = self.encoder, self.corpus, self.task, [self.seed]
        (probe,) = train_probes(*given, self.scratch, self.execution)
        return probe.requires_grad_(False)

    def own_loss(self, substitute: Substitute) -> OwnLoss:
        """The loss of what the model's own head answers, with a substitute as far as heads'
        attention is not their own.
        """
        reference = self.encoder.reference
        assert reference is not None, "an own head is read from files"
        own = opened_own(self.task, reference, str(self.encoder.device))
        return OwnLoss(own, substitute, self.corpus, self.task)

    def train(self, learner: JointLearner, rate: float | None = None) -> int:
        """Train for as many epochs as λ is; gives their number."""
        spec = lambda_spec(self.task, self.ranking, rate)
        learner.train(spec, self.seed, self.rows, progress=self.progress)
        return spec.epochs


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
