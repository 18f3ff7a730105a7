"""What a method that scores heads is asked, by what it reads labels, and what it answers.

Labels are read by a probe that is trained on the encoder as it is and then frozen, or by the
model's own head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from papa.attention.constants import ConstantMatrices
from papa.attention.substitutes import Substitute
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.rows import rows_of_seed
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import build_probe
from papa.probes.features import check_disk, feature_bytes, features_of
from papa.probes.joint import PartGradients, train_jointly
from papa.probes.own_model import opened_own
from papa.probes.probes import Probe
from papa.probes.training import fit_probes
from papa.progress import Progress, ignore_progress
from papa.ranking.own import OwnLoss
from papa.ranking.value import FrozenLosses, LossValue, OwnLosses
from papa.spec import ExecutionSpec, RankingSpec, TaskSpec

_VALUED_ROWS = 256
"""Training rows on which a set of heads is valued, where ``ranking.rows`` asks for no other."""


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


@dataclass(frozen=True)
class Scored:
    """The scores of all heads.

    Attributes:
        values: the smallest becomes constant first.
        standard_error: of the values; None where the method has none.
        draws: how many draws it is from; 0 where it has none.
        evaluations: forward passes over the rows, gradients counted as one more each.
    """

    values: Float[np.ndarray, "layers heads"]
    standard_error: Float[np.ndarray, "layers heads"] | None
    evaluations: int
    draws: int = 0


def frozen_probe(asked: Asked) -> Probe:
    """The probe that ``asked`` gives, else one that is trained now."""
    return asked.probe or trained_probe(
        asked.encoder,
        asked.corpus,
        asked.task,
        asked.seed,
        scratch=asked.scratch,
        execution=asked.execution,
    )


def trained_probe(
    encoder: Encoder,
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seed: int,
    *,
    scratch: Path,
    execution: ExecutionSpec,
    progress: Progress = ignore_progress,
) -> Probe:
    """The task's probe of a seed, trained on all training rows as that of a cell without constant
    heads is.
    """
    split, spec = corpus.split("train"), task.probe
    probe = build_probe(encoder, corpus, task, [seed]).to(encoder.device)
    needed = feature_bytes(encoder, split, "float32")
    kept = needed <= execution.features_budget_gb * 1e9 and not spec.encoder_dropout
    scratch.mkdir(parents=True, exist_ok=True)
    if kept:
        check_disk(scratch, needed)
    with features_of(
        encoder,
        split,
        scratch,
        kept=kept,
        dropout=spec.encoder_dropout,
        batch_tokens=None,
        dtype="float32",
    ) as source:
        fit_probes(
            probe,
            source,
            seeds=[seed],
            spec=spec,
            token_values=(encoder.layers + 1) * encoder.width,
            progress=progress,
        )
    return probe.requires_grad_(False)


def own_loss(asked: Asked, substitute: Substitute) -> OwnLoss:
    """The loss of what the model's own head answers on the training text, with a substitute as far
    as heads' attention is not their own.
    """
    reference, task = asked.encoder.reference, asked.task
    assert reference is not None, "an own head is read from files"
    model, special_tokens = opened_own(task, reference, str(asked.encoder.device))
    return OwnLoss.on_training_text(
        model.requires_grad_(False), substitute, asked.corpus, special_tokens, task
    )


def frozen_value(asked: Asked) -> LossValue:
    """v by the losses on a sample of training rows: of a probe, trained first unless it is given,
    or of the model's own head.
    """
    split = asked.corpus.split("train")
    rows = rows_of_seed(len(split), asked.ranking.rows or _VALUED_ROWS, asked.seed)
    if asked.task.head == "own":
        loss = own_loss(asked, asked.constants)
        return LossValue(OwnLosses(loss, rows, (asked.encoder.layers, asked.encoder.heads)))
    probe = frozen_probe(asked)
    return LossValue(FrozenLosses(asked.encoder, asked.constants, split, rows, probe))


def train_for_epochs(
    asked: Asked, of_parts: PartGradients, trained: Sequence[nn.Parameter], rate: float
) -> int:
    """Train by gradients of parts, for as many epochs as λ is; gives their number."""
    epochs = asked.ranking.epochs_on(asked.task)
    train_jointly(
        asked.encoder,
        of_parts,
        trained,
        asked.corpus,
        spec=asked.task.probe,
        rows=asked.rows,
        epochs=epochs,
        rate=asked.ranking.learning_rate or rate,
        seed=asked.seed,
        progress=asked.progress,
    )
    return epochs
