"""A cell of a study, scored, whatever of its heads is constant (paper, Sections 3.3 and 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from papa.attention.constants import ConstantMatrices
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import EntryCounts, replaced, reused
from papa.corpora.batches import micro_batches
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import evaluate_cell, evaluate_trained_cell
from papa.probes.training import SeedScore
from papa.progress import OnEpoch, Progress, ignore_epoch, ignore_progress
from papa.scores.metrics import positive_name
from papa.scores.own import OwnCode
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec
from papa.spec.orders import Head

_COUNTED_TOKENS = 4096
"""Tokens of rows whose entries are counted at a time."""


@dataclass(frozen=True, eq=False)
class CellScores:
    """What scoring a cell found; equal to itself alone.

    Attributes:
        positive: the class that F1 is of; None for other metrics.
        unseen_share: of the entries of C that validation rows read, the share that the average
            never saw; None without replacement, of constant outputs, and where C was trained.
        constant_heads: as (layer, head), sorted.
    """

    scores: tuple[SeedScore, ...]
    positive: str | None
    unseen_share: float | None
    constant_heads: tuple[Head, ...]
    heads: int


def score_cell(
    encoder: Encoder,
    constants: ConstantMatrices | ConstantOutputs | str | None,
    heads: Sequence[Head],
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    trained: bool,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    code: OwnCode | None = None,
    progress: Progress = ignore_progress,
    on_epoch: OnEpoch = ignore_epoch,
) -> CellScores:
    """Train and score the task's probe for every seed while ``heads`` are constant.

    Args:
        constants: C, or constant outputs; ``papa.spec.values.REUSED``; None where no head is
            constant.
        trained: whether the constant matrices are trained with the probe, from ``constants`` on.
        features, execution, scratch, code, progress, on_epoch: see
            ``papa.probes.evaluate.evaluate_cell``.
    """
    heads, unseen_share = sorted(heads), None

    def evaluated() -> list[SeedScore]:
        return evaluate_cell(
            encoder,
            corpus,
            task,
            seeds,
            features=features,
            execution=execution,
            scratch=scratch,
            code=code,
            progress=progress,
            on_epoch=on_epoch,
        )

    if constants is None or not heads:
        scores = evaluated()
    elif isinstance(constants, str):
        with reused(encoder, heads):
            scores = evaluated()
    elif trained:
        scores = evaluate_trained_cell(
            encoder,
            constants,
            heads,
            corpus,
            task,
            seeds,
            execution=execution,
            code=code,
            progress=progress,
            on_epoch=on_epoch,
        )
    else:
        with replaced(encoder, constants, heads):
            scores = evaluated()
        if isinstance(constants, ConstantMatrices):
            unseen_share = unseen_by(constants, corpus.split("validation"))
    return CellScores(
        scores=tuple(scores),
        positive=positive_name(task, corpus.label_names),
        unseen_share=unseen_share,
        constant_heads=tuple(heads),
        heads=encoder.layers * encoder.heads,
    )


def unseen_by(constants: ConstantMatrices, split: TokenisedSplit) -> float:
    """Of the entries of C that the rows of a split read, the share that the average never saw."""
    entries = EntryCounts()
    for batch in micro_batches(split, None, _COUNTED_TOKENS):
        entries.add(constants.seen_at(batch.columns), batch)
    return entries.unseen_share
