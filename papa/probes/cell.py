"""A cell of a study, scored, whatever of its heads is constant (paper, Sections 3.3 and 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from papa.attention.constants import ConstantMatrices
from papa.attention.outputs import ConstantOutputs
from papa.attention.replacement import EntryCounts, replaced
from papa.attention.substitutes import Substitute
from papa.corpora.batches import micro_batches
from papa.corpora.corpus import TokenisedCorpus
from papa.corpora.split import TokenisedSplit
from papa.encoders.encoder import Encoder
from papa.probes.evaluate import evaluate_cell, evaluate_trained_cell
from papa.probes.training import SeedScore
from papa.spec import ExecutionSpec, FeaturesSpec, TaskSpec
from papa.spec.orders import Head

_COUNTED_TOKENS = 4096
"""Tokens of rows whose entries are counted at a time."""


def score_cell(
    encoder: Encoder,
    constants: Substitute | None,
    heads: Sequence[Head],
    corpus: TokenisedCorpus,
    task: TaskSpec,
    seeds: Sequence[int],
    *,
    trained: bool,
    features: FeaturesSpec,
    execution: ExecutionSpec,
    scratch: Path,
    **options: Any,
) -> tuple[list[SeedScore], float | None]:
    """The scores of the task's probe for every seed while ``heads`` put out ``constants``, and the
    unseen share of an average; ``options`` are those of ``evaluate_cell``.
    """
    block: AbstractContextManager[Any] = nullcontext()
    if constants is not None and heads:
        if trained:
            assert isinstance(constants, ConstantMatrices | ConstantOutputs)
            scores = evaluate_trained_cell(
                encoder, constants, heads, corpus, task, seeds, execution=execution, **options
            )
            return scores, None
        block = replaced(encoder, constants, heads)
    with block:
        scores = evaluate_cell(
            encoder,
            corpus,
            task,
            seeds,
            features=features,
            execution=execution,
            scratch=scratch,
            **options,
        )
    if not heads or not isinstance(constants, ConstantMatrices):
        return scores, None
    return scores, unseen_by(constants, corpus.split("validation"))


def unseen_by(constants: ConstantMatrices, split: TokenisedSplit) -> float:
    """Of the entries of C that the rows of a split read, the share that the average never saw."""
    entries = EntryCounts()
    for batch in micro_batches(split, None, _COUNTED_TOKENS):
        entries.add(constants.seen_at(batch.columns), batch.attention_mask)
    return entries.unseen_share
